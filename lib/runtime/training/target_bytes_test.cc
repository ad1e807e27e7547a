// Bits per byte: what the bytes are.
#include "lib/runtime/training/target_bytes.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "lib/base/testing.h"
#include "lib/runtime/generation/fake_model.h"
#include "lib/runtime/training/text_recipes.h"

namespace lumen::runtime {
namespace {

TEST_CASE("targets that count stand for bytes of text, control tokens for none") {
  const TargetBytes bytes(std::make_shared<testing::ByteTokenizer>());
  const int32_t eos = testing::ByteTokenizer::kEos, none = data::kIgnored;
  data::Batch batch;
  const std::vector<int32_t> targets = {'a', 0xC3, 0xA4, eos, none, 'b', none, none};
  batch.fields["targets"] = Array::from<int32_t>(targets, {2, 4});
  REQUIRE(bytes.count(batch) == 4);
}

TEST_CASE("an evaluation of text says bits per byte") {
  // One token of the tokenizer is one byte, and the end of each text is one more that counts.
  const auto task = make_task(testing::text_recipe(testing::kLlama), {.threads = 1});
  const auto metrics = task->evaluate();
  const double bits = metrics.at("eval_loss") / std::numbers::ln2;
  REQUIRE(metrics.at("eval_bits_per_byte") > bits);
  REQUIRE(metrics.at("eval_bits_per_byte") < 1.5 * bits);
}

}  // namespace
}  // namespace lumen::runtime
