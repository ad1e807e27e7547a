// Packed layers become what the programs that packed them unpack (testdata/packed), and others are
// refused.
#include "lib/io/packed_weights.h"

#include <cmath>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/base/testing.h"
#include "lib/io/test_files.h"

namespace lumen::io {
namespace {

using testing::contains;

struct Golden {
  std::shared_ptr<const SafetensorsFile> file;
  Json config;
};

Golden open_golden(const std::string& name) {
  Golden golden{read_safetensors(testing::source_path("testdata/packed/" + name + ".safetensors")),
                {}};
  for (const auto& [key, value] : golden.file->metadata) {
    if (key == "config") golden.config = parse_json(value, "config");
  }
  return golden;
}

// The numbers of 4- and 8-bit blocks by ggml's definition of the types.
std::vector<float> values_of(const Array& array) {
  const auto half = [](const std::byte* p) {
    f16 value;
    std::memcpy(&value, p, sizeof value);
    return to_float(value);
  };
  std::vector<float> values;
  const auto& type = info(array.dtype());
  for (size_t at = 0; at < array.bytes(); at += type.block_bytes) {
    const std::byte* p = array.data() + at;
    const auto nibble = [&](int first, int i) {
      return static_cast<int>(p[first + i % 16] >> (i < 16 ? 0 : 4) & std::byte{15});
    };
    for (int i = 0; i < type.block_elements; ++i) {
      switch (array.dtype()) {
        case DType::kF16:
          values.push_back(half(p));
          break;
        case DType::kQ8_0:
          values.push_back(half(p) * static_cast<float>(static_cast<int8_t>(p[2 + i])));
          break;
        case DType::kQ2_K: {
          const int shift = i % 128 / 32 * 2;
          const auto code = std::to_integer<int>(p[16 + i / 128 * 32 + i % 32] >> shift) & 3;
          const auto scale = std::to_integer<int>(p[i / 16]);
          values.push_back(half(p + 80) * static_cast<float>((scale & 15) * code) -
                           half(p + 82) * static_cast<float>(scale >> 4));
          break;
        }
        case DType::kQ4_0:
          values.push_back(half(p) * static_cast<float>(nibble(2, i) - 8));
          break;
        default:
          REQUIRE(array.dtype() == DType::kQ4_1);
          values.push_back(half(p) * static_cast<float>(nibble(4, i)) + half(p + 2));
      }
    }
  }
  return values;
}

// The file of one tensor "x.qweight" [1, 32] of I32, and others that are given as JSON entries
// behind it, of no bytes.
std::shared_ptr<const SafetensorsFile> file_of(const std::string& entries) {
  const std::string header =
      "{\"x.qweight\":{\"dtype\":\"I32\",\"shape\":[1,32],\"data_offsets\":[0,128]}" + entries +
      "}";
  return parse_safetensors(buffer_of(safetensors_file(header, 128)), "test.safetensors");
}

std::string refusal(ErrorKind kind, const SafetensorsFile& file, const std::string& config) {
  return testing::refusal(
      kind, [&] { unpacked_weights(file, *packing_of(parse_json(config, "config"))); });
}

}  // namespace

TEST_CASE("packed layers are what the programs unpack that packed them") {
  struct Case {
    const char* name;
    DType dtype;
    // Of the largest number. Codes and their scales are kept; offsets and float16 elements round.
    double tolerance = 0;
  };
  constexpr double kHalf = 0x1p-11;
  for (const Case& each : {Case{"gptq-4", DType::kQ4_1, kHalf},
                           Case{"gptq-4-symmetric", DType::kQ4_0},
                           Case{"gptq-4-act-order", DType::kF16, kHalf},
                           Case{"gptq-3-whole-rows", DType::kQ4_1, kHalf},
                           Case{"gptq-8", DType::kQ8_0},
                           Case{"awq", DType::kQ4_1, kHalf},
                           Case{"mlx-4", DType::kQ4_1, 1e-7},
                           Case{"mlx-3", DType::kQ4_1, 1e-7},
                           Case{"mlx-8", DType::kF16, kHalf},
                           Case{"compressed-4", DType::kQ4_1, kHalf},
                           Case{"compressed-8", DType::kQ8_0},
                           Case{"compressed-int8", DType::kQ8_0},
                           Case{"compressed-float8", DType::kF16, kHalf},
                           Case{"fp8", DType::kF16, kHalf},
                           Case{"bitsandbytes-nf4", DType::kF16, kHalf},
                           Case{"bitsandbytes-fp4", DType::kF16, kHalf},
                           Case{"bitsandbytes-int8", DType::kQ8_0, kHalf},
                           Case{"bitnet", DType::kF16},
                           Case{"bitnet-wide", DType::kQ2_K},
                           Case{"bitnet-divided", DType::kF16, kHalf},
                           Case{"bitnet-divided-wide", DType::kQ2_K, kHalf / 2},
                           Case{"bitnet-online", DType::kF16},
                           Case{"bitnet-online-float", DType::kQ2_K, kHalf / 2}}) {
    INFO(each.name);
    const Golden golden = open_golden(each.name);
    const auto packing = packing_of(golden.config);
    REQUIRE(packing != nullptr);
    const NamedArrays arrays = unpacked_weights(*golden.file, *packing);
    // Nothing else: no zero bias, no scale of a cache.
    REQUIRE(arrays.size() == 2);
    const Array& weight = arrays.at("x.weight");
    CHECK(weight.dtype() == each.dtype);
    CHECK(weight.shape() == arrays.at("x.expected").shape());
    const auto expected = arrays.at("x.expected").as<float>();
    const std::vector<float> values = values_of(weight);
    REQUIRE(values.size() == expected.size());
    double largest = 0, difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max<double>(largest, std::abs(expected[i]));
      difference = std::max<double>(difference, std::abs(values[i] - expected[i]));
    }
    CHECK(difference <= each.tolerance * largest);
    Json config = golden.config;
    erase_packing(config);
    CHECK(packing_of(config) == nullptr);
  }
}

TEST_CASE("zero biases that packing added go, those of the architecture stay") {
  const Golden golden = open_golden("gptq-4");
  SafetensorsFile file = *golden.file;
  for (SafetensorsTensor& tensor : file.tensors) {
    if (tensor.name != "x.expected") tensor.name = "x.q_proj" + tensor.name.substr(1);
  }
  for (const char* type : {"llama", "qwen2"}) {
    Json config = golden.config;
    config["model_type"] = type;
    const bool stays = unpacked_weights(file, *packing_of(config)).contains("x.q_proj.bias");
    CHECK(stays == (std::string_view(type) == "qwen2"));
  }
}

TEST_CASE("packed layers that are damaged are refused") {
  const std::string gptq =
      R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 8}})";
  CHECK(contains(refusal(ErrorKind::kMalformed, *file_of(""), gptq),
                 "there is no tensor 'x.qzeros'"));
  const std::string zeros = R"(,"x.qzeros":{"dtype":"I32","shape":[1,0],"data_offsets":[128,128]})";
  CHECK(contains(refusal(ErrorKind::kMalformed, *file_of(zeros), gptq),
                 "tensor 'x.qzeros': found the shape [1, 0], expected a matrix"));

  // Of the goldens: another group size than that of the scales, a group that is not there, and
  // words that do not fit the columns.
  Golden golden = open_golden("gptq-4-act-order");
  golden.config["quantization_config"]["group_size"] = 16;
  CHECK(contains(refusal(ErrorKind::kMalformed, *golden.file, golden.config.dump()),
                 "tensor 'x.scales': found the shape [2, 32], expected [4, 32]"));
  golden.config["quantization_config"]["group_size"] = -1;
  CHECK(contains(refusal(ErrorKind::kMalformed, *golden.file, golden.config.dump()),
                 "tensor 'x.g_idx': found group 1, expected 0 to 0"));
  golden = open_golden("mlx-4");
  golden.config["quantization"]["group_size"] = 1024;
  CHECK(contains(refusal(ErrorKind::kMalformed, *golden.file, golden.config.dump()),
                 "8 words do not fit 2048 columns"));

  // A layer of BitNet whose codes are all `code`, with a scale of 0, in bytes that `type` names.
  const auto bitnet = [](char code, const char* type, const char* linear) {
    const std::string header =
        str(R"({"x.weight_scale":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)",
            R"("x.weight":{"dtype":")", type, R"(","shape":[2,4],"data_offsets":[4,12]}})");
    const std::string file = safetensors_file(header, 4) + std::string(8, code);
    return refusal(ErrorKind::kMalformed, *parse_safetensors(buffer_of(file), "test.safetensors"),
                   str(R"({"quantization_config": {"quant_method": "bitnet", "linear_class": ")",
                       linear, "\"}}"));
  };
  CHECK(contains(bitnet(3, "U8", "autobitlinear"), "'x.weight': found the code 3, expected 0, 1"));
  CHECK(contains(bitnet(1, "I8", "autobitlinear"), "'x.weight': found I8, expected U8"));
  CHECK(contains(bitnet(1, "U8", "bitlinear"), "found 0, which weights cannot be divided by"));
}

TEST_CASE("methods of packing that Lumen lacks are named") {
  const auto file = file_of("");
  const auto of = [&](const std::string& packing) {
    return refusal(ErrorKind::kUnsupported, *file, "{\"quantization_config\": {" + packing + "}}");
  };
  CHECK(contains(of(R"("quant_method": "hqq")"), "found the string 'hqq'"));
  CHECK(contains(of(R"("quant_method": "mxfp4")"), "found the string 'mxfp4'"));  // not gpt-oss
  CHECK(contains(of(R"("quant_method": "gptq", "bits": 5)"),
                 "key 'bits': found the number 5, Lumen unpacks 2, 3, 4 and 8; take the model in"));
  for (const char* key : {"format", "checkpoint_format"}) {
    const std::string packing = R"("quant_method": "gptq", "bits": 4, ")";
    CHECK(contains(of(packing + key + R"(": "marlin")"), "found the string 'marlin'"));
  }
  CHECK(contains(of(R"("quant_method": "awq", "bits": 4, "version": "gemv")"), "'gemv'"));
  CHECK(contains(of(R"("quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
                       "config_groups": {"group_0": {"weights": {"num_bits": 4}}})"),
                 "nvfp4"));
  CHECK(contains(refusal(ErrorKind::kUnsupported, *file,
                         R"({"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}})"),
                 "mxfp4"));
  CHECK(contains(refusal(ErrorKind::kMalformed, *file, R"({"quantization_config": 5})"),
                 "key 'quant_method'"));
  for (const char* key : {"linear_class", "quantization_mode"}) {
    CHECK(contains(of(str(R"("quant_method": "bitnet", ")", key, R"(": "other")")), key));
  }
  CHECK(contains(of(R"("quant_method": "bitnet", "use_rms_norm": true)"), "use_rms_norm"));
}

}  // namespace lumen::io
