#include "lib/graph/plan.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/graph/memory_plan.h"
#include "lib/kernels/streaming.h"
#include "lib/ops/ops.h"

using namespace lumen;
using graph::Tensor;
using testing::contains;
using testing::refusal;

TEST_CASE("reading a value computes it, once") {
  const float values[] = {1, 2, 3};
  const Tensor x = graph::constant(values, {3});
  const Tensor y = ops::sum(ops::mul(x, x), 0);
  CHECK(y.node()->value.empty());
  CHECK(y.item() == 14);
  CHECK(!y.node()->value.empty());
  CHECK(ops::add(y, graph::scalar(1)).item() == 15);
}

TEST_CASE("only a tensor of one element is a number") {
  CHECK(graph::reshape(graph::scalar(5), {1, 1}).item() == 5);
  for (const Shape& shape : {Shape{2}, Shape{0}}) {
    const Tensor x = graph::constant(Array::zeros(DType::kI64, shape));
    CHECK(contains(refusal(ErrorKind::kMalformed, [&] { x.item(); }), "item of i64 ["));
  }
}

TEST_CASE("an eager scope computes as operations are recorded") {
  graph::EagerScope eager;
  const Tensor y = ops::exp(graph::scalar(0));
  CHECK(!y.node()->value.empty());
  CHECK(y.item() == 1);
}

TEST_CASE("a plan runs again with other inputs and shares states with other plans") {
  ThreadPool pool(1);
  const Tensor x = graph::input(DType::kF32, {2}, "x");
  const Tensor at = graph::input(DType::kI32, {1}, "at");
  Array memory = Array::zeros(DType::kF32, {1, 1, 3, 2});
  const Tensor cache = graph::state(memory, "cache");
  const Tensor appended = ops::kv_append(cache, graph::reshape(x, {1, 1, 1, 2}), at);
  const Tensor total = ops::sum(graph::reshape(graph::contiguous(appended), {6}), 0);
  graph::Plan append = graph::compile(std::span(&total, 1));
  const Tensor read_all = ops::sum(graph::reshape(cache, {6}), 0);
  graph::Plan read = graph::compile(std::span(&read_all, 1));
  for (int32_t i = 0; i < 3; ++i) {
    append.input(x).as_mutable<float>()[0] = static_cast<float>(i);
    append.input(x).as_mutable<float>()[1] = 10;
    append.input(at).as_mutable<int32_t>()[0] = i;
    append.run(pool);
  }
  CHECK(append.output(0).as<float>()[0] == 33);
  read.run(pool);
  CHECK(read.output(0).as<float>()[0] == 33);
  CHECK(memory.as<float>()[4] == 2);
  CHECK(append.has_input(x));
  CHECK_FALSE(read.has_input(x));
  std::atomic<bool> stop = false;
  CHECK(read.run(pool, &stop));
  stop = true;
  CHECK_FALSE(read.run(pool, &stop));
}

TEST_CASE("several outputs, among them a view, a constant and one twice") {
  ThreadPool pool(2);
  const Tensor x = graph::constant(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor y = ops::neg(x);
  const Tensor outputs[] = {y, graph::transpose(y, 0, 1), x, y};
  graph::Plan plan = graph::compile(outputs, {.verified = true, .threads = 2});
  plan.run(pool);
  CHECK(plan.output(0).as<float>()[5] == -6);
  CHECK(plan.output(1).shape() == Shape{3, 2});
  CHECK(plan.output(1).as<float>()[1] == -4);
  CHECK(plan.output(2).as<float>()[0] == 1);
  CHECK(plan.output(3).as<float>()[0] == -1);
}

TEST_CASE("a chain of 100,000 operations neither overflows the stack nor leaks its nodes") {
  Tensor x = graph::scalar(1);
  for (int i = 0; i < 100000; ++i) x = ops::neg(x);
  CHECK(x.item() == 1);
}

TEST_CASE("memory of results that are not alive together is shared") {
  const Tensor x = graph::input(DType::kF32, {1, 4096}, "x");
  Tensor y = x;
  for (int i = 0; i < 20; ++i) y = ops::softmax(y);
  const graph::Plan plan = graph::compile(std::span(&y, 1));
  CHECK(plan.steps() == 20);
  CHECK(plan.arena_bytes() == 2 * 4096 * sizeof(float));
}

TEST_CASE("no two blocks that are alive together overlap") {
  Philox random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<graph::Interval> blocks(1 + random.below(40));
    for (auto& block : blocks) {
      block.bytes = random.below(5000);
      block.first = static_cast<int>(random.below(50));
      block.last = block.first + static_cast<int>(random.below(10));
    }
    const size_t arena = graph::plan_memory(blocks);
    for (size_t i = 0; i < blocks.size(); ++i) {
      REQUIRE(blocks[i].offset % 64 == 0);
      REQUIRE(blocks[i].offset + blocks[i].bytes <= arena);
      for (size_t j = 0; j < i; ++j) {
        const auto &a = blocks[i], &b = blocks[j];
        const bool together = a.first <= b.last && b.first <= a.last;
        const bool overlap = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
        REQUIRE((!together || !overlap || a.bytes == 0 || b.bytes == 0));
      }
    }
  }
}

TEST_CASE("each block lies in the lowest gap that the larger ones leave") {
  Philox random(7);
  for (int round = 0; round < 300; ++round) {
    const uint64_t steps = 1 + random.below(60), sizes = 1 + random.below(20);
    std::vector<graph::Interval> blocks(1 + random.below(60));
    for (auto& block : blocks) {
      block.bytes = 50 * random.below(sizes);
      block.first = static_cast<int>(random.below(steps));
      block.last = block.first + static_cast<int>(random.below(steps));
    }
    if (round % 2 == 0) std::ranges::sort(blocks, {}, &graph::Interval::first);  // as a plan has it
    graph::plan_memory(blocks);
    std::vector<const graph::Interval*> order, placed;
    for (const auto& block : blocks) order.push_back(&block);
    std::ranges::stable_sort(order, std::greater(), &graph::Interval::bytes);
    for (const auto* block : order) {
      size_t offset = 0;
      const auto is_in_the_way = [&](const auto* other) {
        return other->last >= block->first && block->last >= other->first &&
               other->offset < offset + block->bytes && offset < other->offset + other->bytes;
      };
      while (block->bytes > 0 && std::ranges::any_of(placed, is_in_the_way)) offset += 64;
      REQUIRE(block->offset == offset);
      placed.push_back(block);
    }
  }
}

TEST_CASE("planning memory for values of one size is linear work") {
  // Values that a backward pass reads again, that are alive for a few steps, and half of each.
  const auto looks = [](int n, int shape) {
    std::vector<graph::Interval> blocks;
    for (int i = 0; i < n; ++i) {
      const bool kept = shape == 0 || (shape == 2 && i % 2 == 0);
      blocks.push_back({256, i, kept ? 2 * n - i : std::min(i + 5, n), 0});
    }
    blocks.push_back({4, n, n, 0});
    int64_t count = 0;
    graph::plan_memory(blocks, &count);
    return count;
  };
  for (int shape = 0; shape < 3; ++shape) {
    INFO("shape " << shape);
    CHECK(looks(50'000, shape) < 5 * 50'000);
  }
}

TEST_CASE("graphs of ten thousand branches and constants compile") {
  constexpr int kBranches = 10'000;
  const Tensor x = graph::constant(std::vector<float>(kBranches, 2.0f), {kBranches});
  const Tensor state = graph::state(x.eval(), "x");  // no constant, so that nothing is folded
  Tensor sum;
  double want = 0;
  for (int i = 0; i < kBranches; ++i) {
    const Tensor part = graph::slice(state, 0, i, i + 1);
    const Tensor branch = ops::mul(part, graph::scalar(static_cast<float>(i % 1000)));
    sum = sum.defined() ? ops::add(sum, branch) : branch;
    want += 2 * (i % 1000);
  }
  CHECK(sum.item() == want);  // integers below 2^24 are exact
}

TEST_CASE("views: numpy's reshape rule on strided input, slices, expansion, padding") {
  std::vector<float> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor x = graph::constant(values, {2, 3, 4});
  auto at = [](const Tensor& tensor, size_t i) {
    const Array array = tensor.eval();
    return array.as<float>()[i];
  };
  CHECK(at(graph::reshape(graph::permute(x, {1, 0, 2}), {3, 8}), 4) == 12);
  CHECK(at(graph::reshape(graph::slice(x, 2, 1, 3), {6, 2}), 3) == 6);
  CHECK(at(graph::reshape(graph::slice(x, 2, 1, 3), {-1}), 11) == 22);
  CHECK(at(graph::expand(graph::slice(x, 1, 0, 1), {2, 5, 4}), 7) == 3);
  const Tensor padded = graph::pad(graph::slice(x, 0, 0, 1), 1, 1, 2);
  CHECK(padded.shape() == Shape{1, 6, 4});
  CHECK(at(padded, 3) == 0);
  CHECK(at(padded, 4) == 0);
  CHECK(at(padded, 15) == 11);
  CHECK_THROWS_AS(graph::slice(x, 1, 2, 4), Error);
  CHECK_THROWS_AS(graph::expand(x, {2, 5, 4}), Error);
  CHECK_THROWS_AS(graph::permute(x, {0, 0, 1}), Error);
}

TEST_CASE("values that nobody gave are refused") {
  const Tensor x = graph::input(DType::kF32, {2}, "x"), other = graph::input(DType::kF32, {2}, "y");
  for (const Tensor& value : {x, ops::exp(x)}) {
    CHECK(contains(refusal(ErrorKind::kMalformed, [&] { value.eval(); }), "the input 'x'"));
  }
  const Tensor y = ops::exp(x);
  graph::Plan plan = graph::compile(std::span(&y, 1));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { plan.input(other); }), "depend on 'y'"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [] { graph::constant(Array()); }), "no memory"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [] { graph::state(Array(), "s"); }), "no memory"));
  const float values[] = {1, 2, 3};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { graph::constant(values, {4}); }),
                 "3 values for an array of shape [4]"));
}

TEST_CASE("bfloat16 results are rounded but where they are numbers of the operands") {
  constexpr int64_t kCount = 1500;
  Array values = Array::zeros(DType::kF32, {kCount});
  for (int64_t i = 0; i < kCount; ++i) {
    values.as_mutable<float>()[static_cast<size_t>(i)] = static_cast<float>(i - 700) / 3;
  }
  values.as_mutable<float>()[9] = std::numeric_limits<float>::quiet_NaN();
  const Tensor wide = graph::state(values, "x"), x = graph::contiguous(wide, DType::kBF16);
  // Computed in float32, then rounded by itself.
  auto same = [](const Tensor& got, const Tensor& exact) {
    REQUIRE(got.dtype() == DType::kBF16);
    const Tensor want = graph::contiguous(graph::constant(exact.eval()), DType::kBF16);
    CHECK(std::ranges::equal(got.eval().as<bf16>(), want.eval().as<bf16>(), {}, &bf16::bits,
                             &bf16::bits));
  };
  const Tensor exact = graph::contiguous(x, DType::kF32);
  same(ops::neg(x), ops::neg(exact));
  same(ops::clamp(ops::abs(x), 0.5, 100), ops::clamp(ops::abs(exact), 0.5, 100));
  same(ops::mul(ops::sign(x), x), ops::mul(ops::sign(exact), exact));
  // A bound that bfloat16 lacks, and operands that are not bfloat16.
  const Tensor bound = graph::scalar(1.00001f);
  same(graph::contiguous(ops::maximum(exact, bound), DType::kBF16), ops::maximum(exact, bound));
  same(graph::contiguous(ops::neg(wide), DType::kBF16), ops::neg(wide));
}

TEST_CASE("a result larger than the caches is what a small one is") {
  const int64_t n = kernels::streaming_bytes() / 4 + 1001;
  Array values = Array::zeros(DType::kF32, {n});
  for (int64_t i = 0; i < n; ++i) {
    values.as_mutable<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 8191);
  }
  const Tensor x = graph::constant(values);
  const Tensor y = ops::sub(ops::mul(x, graph::scalar(2)), graph::scalar(1));
  graph::Plan plan = graph::compile(std::span(&y, 1));
  plan.run(graph::current_pool());
  const auto got = plan.output(0).as<float>();
  for (int64_t i = 0; i < n; ++i) {
    const float want = 2 * static_cast<float>(i % 8191) - 1;
    if (got[static_cast<size_t>(i)] != want) {
      CAPTURE(i);
      REQUIRE(got[static_cast<size_t>(i)] == want);
    }
  }
}
