#include "lib/io/gguf_adapter.h"

#include <cmath>
#include <utility>

#include "lib/base/error.h"
#include "lib/io/gguf_architecture.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_formats.h"

namespace lumen::io {
namespace {

constexpr const char* kAlpha = "adapter.lora.alpha";
constexpr std::string_view kWeight = "weight";

// The ends of a pair's names in GGUF, and what they are in PEFT.
constexpr std::pair<std::string_view, std::string_view> kFactors[] = {{".lora_a", "lora_A."},
                                                                      {".lora_b", "lora_B."}};

void check_kind(const GgufMetadata& metadata) {
  const std::string_view kind = metadata.get_string("adapter.type", "");
  if (kind != "lora") {
    fail(ErrorKind::kUnsupported, "adapter.type is ", quoted(kind), ", expected 'lora'");
  }
  if (metadata.find("adapter.alora.invocation_tokens")) {
    fail(ErrorKind::kUnsupported,
         "activated adapters, which begin at given tokens, are not supported");
  }
}

std::string adapter_tensor_name(const std::string& name, std::string_view architecture) {
  for (const auto& [end, factor] : kFactors) {
    if (!name.ends_with(end)) continue;
    std::string layer = hugging_face_name(name.substr(0, name.size() - end.size()), architecture);
    if (!layer.ends_with(kWeight)) break;
    return layer.insert(layer.size() - kWeight.size(), factor);
  }
  return hugging_face_name(name, architecture);
}

}  // namespace

bool is_adapter(const GgufFile& file) {
  const auto type = file.metadata.find("general.type");
  return type && type->is_string() && type->as_string() == "adapter";
}

GgufAdapter read_gguf_adapter(const std::string& path) {
  const auto file = read_gguf(path);
  GgufAdapter adapter;
  with_context(place_of(path), [&] {
    if (!is_adapter(*file)) {
      fail(ErrorKind::kUnsupported, "is no LoRA adapter: general.type is ",
           quoted(file->metadata.get_string("general.type", "")), ", expected 'adapter'");
    }
    check_kind(file->metadata);
    adapter.architecture = file->metadata.get_string("general.architecture");
    if (adapter.architecture == "internlm2") adapter.architecture = "llama";  // by another name
    adapter.alpha = file->metadata.get_number(kAlpha, 0);
    if (!std::isfinite(adapter.alpha)) {
      fail(ErrorKind::kMalformed, kAlpha, " is ", adapter.alpha, ", expected a finite number");
    }
    adapter.chat_templates = gguf_chat_templates(file->metadata);
    for (const GgufTensor& tensor : file->tensors) {
      const auto [at, is_new] = adapter.tensors.emplace(
          adapter_tensor_name(tensor.name, adapter.architecture), file->array(tensor));
      if (!is_new) {
        fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), " is there twice, once as ",
             quoted(at->first));
      }
    }
  });
  return adapter;
}

void set_gguf_adapter(const GgufAdapter& adapter, GgufWriter& writer) {
  writer.set("general.architecture", adapter.architecture);
  writer.set("general.type", std::string("adapter"));
  writer.set("adapter.type", std::string("lora"));
  writer.set(kAlpha, static_cast<float>(adapter.alpha));
  set_gguf_chat_templates(adapter.chat_templates, writer);
}

std::string gguf_adapter_tensor_name(const std::string& name, std::string_view architecture) {
  for (const auto& [end, factor] : kFactors) {
    const size_t at = name.rfind(factor);
    if (at == name.npos) continue;
    std::string layer = name;
    layer = gguf_tensor_name(layer.erase(at, factor.size()), architecture);
    layer = gguf_holding_tensor(layer, architecture);
    return layer.empty() ? "" : layer + std::string(end);
  }
  return "";
}

}  // namespace lumen::io
