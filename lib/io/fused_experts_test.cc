#include "lib/io/fused_experts.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "lib/base/testing.h"

using namespace lumen;
using namespace lumen::io;
using lumen::testing::contains;

namespace {

constexpr const char* kExperts = "model.layers.0.mlp.experts.";

const Json& two_experts() {
  static const Json config = {{"model_type", "gpt_oss"},
                              {"num_local_experts", 2},
                              {"hidden_size", 32},
                              {"intermediate_size", 3}};
  return config;
}

Array counted(const Shape& shape) {
  std::vector<float> numbers(static_cast<size_t>(shape.elements()));
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  return Array::from<float>(numbers, shape);
}

std::string refused(const char* name, const Array& array, const char* other = nullptr,
                    const Array& second = {}) {
  NamedArrays tensors = {{kExperts + std::string(name), array}};
  if (other != nullptr) tensors.emplace(kExperts + std::string(other), second);
  return lumen::testing::refusal(ErrorKind::kMalformed,
                                 [&] { split_experts(two_experts(), tensors); });
}

}  // namespace

TEST_CASE("experts in one tensor get matrices and biases of their own") {
  const std::string place = kExperts;
  NamedArrays tensors = {{place + "gate_up_proj", counted({2, 32, 6})},
                         {place + "gate_up_proj_bias", counted({2, 6})},
                         {place + "down_proj", counted({2, 3, 32})},
                         {place + "down_proj_bias", counted({2, 32})},
                         {"model.norm.weight", counted({32})}};
  split_experts(two_experts(), tensors);
  CHECK(tensors.size() == 2 * 3 + 3 + 1);
  const Array up = tensors.at(place + "1.up_proj.weight");
  REQUIRE(up.shape() == Shape{3, 32});
  const Array down = tensors.at(place + "1.down_proj.weight");
  REQUIRE(down.shape() == Shape{32, 3});
  const Array gate = tensors.at(place + "0.gate_proj.weight");
  for (size_t h = 0; h < 32; ++h) {
    for (size_t i = 0; i < 3; ++i) {
      CHECK(gate.as<float>()[i * 32 + h] == static_cast<float>(h * 6 + 2 * i));
      CHECK(up.as<float>()[i * 32 + h] == static_cast<float>((32 + h) * 6 + 2 * i + 1));
      CHECK(down.as<float>()[h * 3 + i] == static_cast<float>((3 + i) * 32 + h));
    }
  }
  const Array bias = tensors.at(place + "up_proj.bias");
  REQUIRE(bias.shape() == Shape{2, 3});
  for (size_t i = 0; i < 6; ++i) CHECK(bias.as<float>()[i] == static_cast<float>(2 * i + 1));
  CHECK(tensors.at(place + "down_proj.bias").shape() == Shape{2, 32});

  join_experts(two_experts(), tensors);
  CHECK(tensors.size() == 5);
  const std::pair<const char*, Shape> fused[] = {{"gate_up_proj", {2, 32, 6}},
                                                 {"gate_up_proj_bias", {2, 6}},
                                                 {"down_proj", {2, 3, 32}},
                                                 {"down_proj_bias", {2, 32}}};
  for (const auto& [name, shape] : fused) {
    const Array again = tensors.at(place + name), before = counted(shape);
    CHECK(again.shape() == shape);
    CHECK(std::ranges::equal(again.as<float>(), before.as<float>()));
  }
}

TEST_CASE("experts in one tensor with gates before ups are parts of it") {
  const Json config = {{"model_type", "qwen3_5_moe_text"},
                       {"num_experts", 2},
                       {"hidden_size", 4},
                       {"moe_intermediate_size", 3},
                       {"intermediate_size", 9}};
  CHECK(experts_form(config) == ExpertsForm::kHalves);
  const std::string place = kExperts, guessing = "mtp.layers.0.mlp.experts.gate_up_proj";
  NamedArrays tensors = {{place + "gate_up_proj", counted({2, 6, 4})},
                         {place + "down_proj", counted({2, 4, 3})},
                         {guessing, counted({1})}};
  const std::byte* const data = tensors.at(place + "gate_up_proj").data();
  split_experts(config, tensors);
  CHECK(tensors.size() == 2 * 3 + 1);
  CHECK(tensors.contains(guessing));
  const Array up = tensors.at(place + "1.up_proj.weight");
  REQUIRE(up.shape() == Shape{3, 4});
  CHECK(up.as<float>()[0] == 24 + 12);
  CHECK(up.data() == data + (24 + 12) * sizeof(float));  // nothing is copied
  CHECK(tensors.at(place + "0.gate_proj.weight").data() == data);
  CHECK(tensors.at(place + "1.down_proj.weight").as<float>()[0] == 12);
  join_experts(config, tensors);
  CHECK(tensors.size() == 3);
  for (const auto& [name, shape] :
       {std::pair("gate_up_proj", Shape{2, 6, 4}), std::pair("down_proj", Shape{2, 4, 3})}) {
    const Array again = tensors.at(place + name), before = counted(shape);
    CHECK(again.shape() == shape);
    CHECK(std::ranges::equal(again.as<float>(), before.as<float>()));
  }
  // Of a family whose published files have the matrices of each.
  Json other = config;
  other["model_type"] = "qwen3_next";
  CHECK(experts_form(other) == ExpertsForm::kEachItsOwn);
  split_experts(other, tensors);
  CHECK(tensors.at(place + "1.up_proj.weight").shape() == Shape{3, 4});
  // Names of LFM2's.
  const std::string lfm = "model.layers.0.feed_forward.experts.";
  NamedArrays short_names = {{lfm + "gate_up_proj", counted({2, 6, 4})},
                             {lfm + "down_proj", counted({2, 4, 3})}};
  other["model_type"] = "lfm2_moe";
  split_experts(other, short_names);
  CHECK(short_names.size() == 2 * 3);
  CHECK(short_names.at(lfm + "1.w3.weight").as<float>()[0] == 24 + 12);
  CHECK(short_names.at(lfm + "1.w2.weight").as<float>()[0] == 12);
  // As Qwen3-VL was published, and as transformers 5 has it.
  other["model_type"] = "qwen3_vl_moe_text";
  NamedArrays turned = {{place + "gate_up_proj", counted({2, 4, 6})},
                        {place + "down_proj", counted({2, 3, 4})}};
  split_experts(other, turned);
  CHECK(turned.size() == 2 * 3);
  const Array turned_up = turned.at(place + "1.up_proj.weight");
  REQUIRE(turned_up.shape() == Shape{3, 4});
  CHECK(turned_up.as<float>()[1] == 24 + 6 + 3);
  CHECK(turned.at(place + "0.gate_proj.weight").as<float>()[4] == 1);
  CHECK(turned.at(place + "1.down_proj.weight").as<float>()[1] == 12 + 4);
  turned = {{place + "gate_up_proj", counted({2, 6, 4})},
            {place + "down_proj", counted({2, 4, 3})}};
  split_experts(other, turned);
  CHECK(turned.at(place + "1.up_proj.weight").as<float>()[1] == 24 + 12 + 1);
  NamedArrays wrong = {{place + "down_proj", counted({2, 3, 4})}};
  CHECK(contains(
      lumen::testing::refusal(ErrorKind::kMalformed, [&] { split_experts(config, wrong); }),
      "is f32 [2, 3, 4], expected f32, f16 or bf16 [2, 4, 3] as config.json says"));
}

TEST_CASE("experts of other shapes than the config says are refused") {
  CHECK(
      contains(refused("gate_up_proj", counted({2, 6, 32})),
               "'model.layers.0.mlp.experts.gate_up_proj' is f32 [2, 6, 32], expected f32, f16 or "
               "bf16 [2, 32, 6] as config.json says"));
  CHECK(
      contains(refused("down_proj", counted({3, 3, 32})), "expected f32, f16 or bf16 [2, 3, 32]"));
  CHECK(contains(refused("down_proj_bias", counted({2, 3})), "expected f32, f16 or bf16 [2, 32]"));
  const Array blocks = Array::zeros(DType::kU8, {2, 6, 1, 16});
  CHECK(contains(refused("gate_up_proj_blocks", blocks),
                 "_blocks' is there without 'model.layers.0.mlp.experts.gate_up_proj_scales'"));
  CHECK(contains(refused("gate_up_proj_blocks", blocks, "gate_up_proj_scales",
                         Array::zeros(DType::kU8, {2, 6, 2})),
                 "_scales' is u8 [2, 6, 2], expected u8 [2, 6, 1]"));
  CHECK(contains(refused("gate_up_proj_blocks", counted({2, 6, 1, 16}), "gate_up_proj_scales",
                         Array::zeros(DType::kU8, {2, 6, 1})),
                 "_blocks' is f32 [2, 6, 1, 16], expected u8"));
  CHECK(contains(refused("down_proj_blocks", Array::zeros(DType::kU8, {2, 32, 1, 16}),
                         "down_proj_scales", Array::zeros(DType::kU8, {2, 32, 1})),
                 "rows of 3 numbers are not whole blocks of 32"));
}

TEST_CASE("Granite's experts and shared layers are parts of tensors named as layers") {
  const Json config = {{"model_type", "granitemoeshared"},
                       {"num_local_experts", 2},
                       {"hidden_size", 5},
                       {"intermediate_size", 3},
                       {"shared_intermediate_size", 4},
                       {"num_hidden_layers", 1}};
  const std::string sparse = "model.layers.0.block_sparse_moe.",
                    shared = "model.layers.0.shared_mlp.";
  const NamedArrays whole = {{sparse + "input_linear.weight", counted({2, 6, 5})},
                             {sparse + "output_linear.weight", counted({2, 5, 3})},
                             {sparse + "router.layer.weight", counted({2, 5})},
                             {shared + "input_linear.weight", counted({8, 5})},
                             {shared + "output_linear.weight", counted({5, 4})}};
  NamedArrays tensors = whole;
  split_experts(config, tensors);
  CHECK(tensors.size() == 2 * 3 + 1 + 3);
  const Array up = tensors.at(sparse + "experts.1.up_proj.weight");
  REQUIRE(up.shape() == Shape{3, 5});
  CHECK(up.as<float>()[0] == 45);  // row 3 of the second 6 rows
  const Array shared_up = tensors.at(shared + "up_proj.weight");
  REQUIRE(shared_up.shape() == Shape{4, 5});
  CHECK(shared_up.as<float>()[0] == 20);
  CHECK(fused_name(config, sparse + "experts.1.up_proj.weight") == sparse + "input_linear.weight");
  CHECK(fused_name(config, shared + "down_proj.weight") == shared + "output_linear.weight");
  CHECK(fused_name(config, sparse + "router.layer.weight").empty());
  CHECK(fused_name(config, "model.layers.0.self_attn.q_proj.weight").empty());
  join_experts(config, tensors);
  REQUIRE(tensors.size() == whole.size());
  for (const auto& [name, array] : whole) {
    INFO(name);
    REQUIRE(tensors.at(name).shape() == array.shape());
    CHECK(std::ranges::equal(tensors.at(name).as<float>(), array.as<float>()));
  }
  tensors[shared + "input_linear.weight"] = counted({7, 5});
  CHECK(contains(
      lumen::testing::refusal(ErrorKind::kMalformed, [&] { split_experts(config, tensors); }),
      "shared_mlp.input_linear.weight' is f32 [7, 5], expected f32, f16 or bf16 [8, 5]"));
}
