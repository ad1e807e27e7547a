#include "lib/runtime/conversion/set_metadata.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/error.h"
#include "lib/base/fields.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"

namespace lumen::runtime {
namespace {

using Value = io::GgufWriter::Value;

// Patterns of keys, of any architecture, that say what the tensors are.
constexpr std::string_view kOfTensors[] = {"general.architecture",
                                           "*.block_count",
                                           "*.embedding_length*",
                                           "*.feed_forward_length",
                                           "*_feed_forward_length",
                                           "*.vocab_size",
                                           "*.attention.head_count*",
                                           "*.attention.key_length*",
                                           "*.attention.value_length*",
                                           "*.attention.*_lora_rank",
                                           "*.rope.dimension_count*",
                                           "*.expert_count",
                                           "*.expert_shared_count",
                                           "*.leading_dense_block_count",
                                           "*.nextn_predict_layers",
                                           "*.ssm.*",
                                           "*.shortconv.*",
                                           "*.altup.*",
                                           "*.token_type_count"};
// Those that are the vocabulary.
constexpr std::string_view kOfVocabulary[] = {
    "tokenizer.ggml.model",      "tokenizer.ggml.pre",    "tokenizer.ggml.tokens",
    "tokenizer.ggml.scores",     "tokenizer.ggml.merges", "tokenizer.ggml.token_type*",
    "tokenizer.huggingface.json"};
constexpr std::string_view kOfWriter[] = {"general.alignment", "general.file_type",
                                          "general.quantization_version", "split.*",
                                          "quantize.imatrix.*"};

template <size_t n>
bool matches_one(const std::string& key, const std::string_view (&patterns)[n]) {
  return std::ranges::any_of(
      patterns, [&](std::string_view pattern) { return matches_pattern(key, pattern); });
}

[[noreturn]] void refuse(const std::string& key, const std::string& why) {
  fail(ErrorKind::kUsage, "--set ", printable(key), ": ", why);
}

void check_key(const std::string& key) {
  if (matches_one(key, kOfTensors)) refuse(key, "must match the tensors, which stay as they are");
  if (matches_one(key, kOfVocabulary)) refuse(key, "is the vocabulary, which stays as it is");
  if (matches_one(key, kOfWriter)) refuse(key, "is decided by what is written");
  if (key.size() > limits::kGgufKeyBytes) {
    refuse(key, str("is longer than ", limits::kGgufKeyBytes, " bytes"));
  }
}

bool boolean_of(const std::string& key, const std::string& text) {
  if (text != "true" && text != "false") refuse(key, "expected true or false");
  return text == "true";
}

template <typename T>
T integer_of(const std::string& key, const std::string& text) {
  int64_t number = 0;
  const int64_t least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  if (!parse_number(text, number) || number < least || number > most) {
    refuse(key, str("expected a whole number from ", least, " to ", most));
  }
  return static_cast<T>(number);
}

float number_of(const std::string& key, const std::string& text) {
  double number = 0;
  if (!parse_number(text, number) || !(std::abs(number) <= std::numeric_limits<float>::max())) {
    refuse(key, "expected a number");
  }
  return static_cast<float>(number);
}

// `text` as the type that the key has.
Value value_like(const io::GgufValue& present, const std::string& key, const std::string& text) {
  switch (present.type()) {
    case io::GgufType::kString:
      return text;
    case io::GgufType::kBool:
      return boolean_of(key, text);
    case io::GgufType::kF32:
      return number_of(key, text);
    case io::GgufType::kU16:
      return integer_of<uint16_t>(key, text);
    case io::GgufType::kU32:
      return integer_of<uint32_t>(key, text);
    case io::GgufType::kI32:
      return integer_of<int32_t>(key, text);
    case io::GgufType::kArray:
      refuse(key, "is a list, and only single values can be set");
    default:
      refuse(key, str("is of the type ", io::name(present.type()), ", which is not written"));
  }
}

Value value_of_new(const std::string& key, const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  int64_t whole = 0;
  double number = 0;
  if (parse_number(text, whole)) {
    if (whole >= 0) return integer_of<uint32_t>(key, text);
    return integer_of<int32_t>(key, text);
  }
  if (parse_number(text, number)) return number_of(key, text);
  return text;
}

}  // namespace

void set_metadata(const std::vector<std::string>& settings, io::GgufWriter& writer) {
  if (settings.empty()) return;
  const auto present = writer.read_back("the output");
  const auto tokens = present->metadata.find("tokenizer.ggml.tokens");
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    if (equals == setting.npos || equals == 0) {
      fail(ErrorKind::kUsage, "--set: ", quoted(setting), " has not the form KEY=VALUE");
    }
    require_utf8(setting, "set");
    const std::string key = setting.substr(0, equals), text = setting.substr(equals + 1);
    check_key(key);
    const auto old = present->metadata.find(key);
    Value value = old ? value_like(*old, key, text) : value_of_new(key, text);
    if (key.starts_with("tokenizer.ggml.") && key.ends_with("_token_id")) {
      const auto id = integer_of<uint32_t>(key, text);
      if (tokens && id >= tokens->size()) {
        refuse(key, str("the vocabulary has only ", tokens->size(), " tokens"));
      }
      value = id;
    }
    writer.replace(key, value);
  }
}

}  // namespace lumen::runtime
