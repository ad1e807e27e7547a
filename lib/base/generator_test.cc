#include "lib/base/generator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <thread>

#include "lib/base/box_muller.h"
#include "lib/base/testing.h"
#include "lib/io/json.h"

using namespace lumen;
using testing::contains;
using testing::refusal;

namespace {

// How many representable numbers lie between two finite ones.
template <typename Integer, typename Float>
uint64_t ulps(Float a, Float b) {
  auto ordered = [](Float x) {
    const auto bits = std::bit_cast<Integer>(x);
    return bits < 0 ? std::numeric_limits<Integer>::min() - bits : bits;
  };
  return static_cast<uint64_t>(
      std::abs(static_cast<int64_t>(ordered(a)) - static_cast<int64_t>(ordered(b))));
}

template <typename Float, typename Integer>
void check_floats(const io::Json& draw, const std::vector<Float>& got, uint64_t tolerance) {
  const io::Json& last = draw["last"];
  REQUIRE(got.size() >= last.size());
  for (size_t i = 0; i < last.size(); ++i) {
    const Float want = std::bit_cast<Float>(last[i].get<std::make_unsigned_t<Integer>>());
    INFO(draw["kind"] << " " << i << ": " << got[got.size() - last.size() + i] << ", " << want);
    CHECK(ulps<Integer>(got[got.size() - last.size() + i], want) <= tolerance);
  }
}

void check_draw(Generator& generator, const io::Json& draw) {
  const std::string kind = draw["kind"];
  const size_t n = draw["n"];
  std::vector<float> floats(n);
  std::vector<double> doubles(n);
  std::vector<int64_t> integers(n);
  if (kind == "rand") {
    generator.rand(floats);
    check_floats<float, int32_t>(draw, floats, 0);
  } else if (kind == "randn") {
    generator.randn(floats);
    check_floats<float, int32_t>(draw, floats, n < 16 ? 0 : 3);
  } else if (kind == "rand64") {
    generator.rand(doubles);
    check_floats<double, int64_t>(draw, doubles, 0);
  } else if (kind == "randn64") {
    generator.randn(doubles);
    check_floats<double, int64_t>(draw, doubles, 1);
  } else {
    if (kind == "randint") {
      generator.randint(integers, draw["low"], draw["high"]);
    } else {
      generator.randperm(integers);
    }
    CHECK(integers == draw["last"].get<std::vector<int64_t>>());
  }
}

constexpr RandomEngine kEngines[] = {RandomEngine::kPhilox, RandomEngine::kXoshiro256,
                                     RandomEngine::kMt19937};

}  // namespace

TEST_CASE("mt19937 draws what PyTorch draws after manual_seed") {
  const auto document = io::read_json(testing::source_path("testdata/goldens/random.json"));
  for (const io::Json& item : document["cases"]) {
    INFO("seed " << item["seed"]);
    Generator generator(item["seed"].get<uint64_t>(), RandomEngine::kMt19937);
    for (const io::Json& draw : item["draws"]) check_draw(generator, draw);
  }
}

TEST_CASE("mt19937 and xoshiro256++ give the known answers of their authors") {
  // std::mt19937's 10000th number, of the C++ standard.
  Mt19937 mt(5489);
  uint32_t word = 0;
  for (int i = 0; i < 10'000; ++i) word = mt.next_u32();
  CHECK(word == 4123659995);
  // The first numbers from the state 1, 2, 3, 4.
  Xoshiro256 xoshiro(Xoshiro256::State{1, 2, 3, 4});
  CHECK(xoshiro.next_u64() == 41943041);
  CHECK(xoshiro.next_u64() == 58720359);
  CHECK(xoshiro.next_u64() == 3588806011781223);
}

TEST_CASE("distributions have the right moments with every engine") {
  for (RandomEngine engine : kEngines) {
    INFO(name(engine));
    Generator generator(7, engine);
    std::vector<float> x(100'000);
    auto moment = [&](int power) {
      double sum = 0;
      for (double v : x) sum += std::pow(v, power);
      return sum / static_cast<double>(x.size());
    };
    generator.randn(x);
    CHECK(moment(1) == Approx(0).margin(0.015));
    CHECK(moment(2) == Approx(1).margin(0.02));
    CHECK(moment(4) == Approx(3).margin(0.15));
    generator.rand(x);
    CHECK(moment(1) == Approx(0.5).margin(0.005));
    CHECK(moment(2) == Approx(1.0 / 3).margin(0.005));
    std::vector<int64_t> integers(50'000);
    generator.randint(integers, -2, 3);
    for (int64_t value = -2; value < 3; ++value) {
      CHECK(std::ranges::count(integers, value) == Approx(10'000).margin(500));
    }
    std::vector<int64_t> order(1000);
    generator.randperm(order);
    CHECK_FALSE(std::ranges::is_sorted(order));
    std::ranges::sort(order);
    for (int64_t i = 0; i < 1000; ++i) CHECK(order[i] == i);
    CHECK(contains(refusal(ErrorKind::kMalformed, [&] { generator.randint(integers, 3, 3); }),
                   "no integer"));
    CHECK(random_engine(std::string(name(engine))) == engine);
  }
}

TEST_CASE("normal floats are those of exact functions, rounded") {
  constexpr uint32_t kCount = 1 << 24, kHalf = kNormalGroup / 2;
  bool good = true;
  for (uint32_t step = 0; step < kCount; step += 1031 * kHalf) {
    float group[kNormalGroup], uniform[kNormalGroup];
    for (uint32_t i = 0; i < kHalf; ++i) {
      const uint32_t last = step + kHalf < kCount ? step + i : kCount - 1 - i;
      uniform[i] = static_cast<float>(last) * 0x1p-24f;
      uniform[i + kHalf] = static_cast<float>(last * 2654435761u >> 8) * 0x1p-24f;
    }
    std::ranges::copy(uniform, group);
    box_muller(group);
    for (uint32_t i = 0; i < kHalf; ++i) {
      const auto log = static_cast<float>(std::log(1 - static_cast<double>(uniform[i])));
      const float radius = std::sqrt(-2 * log);
      const float angle = static_cast<float>(2 * std::numbers::pi) * uniform[i + kHalf];
      good &= group[i] == radius * static_cast<float>(std::cos(static_cast<double>(angle)));
      good &= group[i + kHalf] == radius * static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
  CHECK(good);
}

TEST_CASE("a generator goes on from its state, a spare normal included") {
  for (RandomEngine engine : kEngines) {
    INFO(name(engine));
    Generator a(3, engine), b(0);
    std::vector<float> three(3), x(40), y(40);
    a.randn(three);
    b.set_state(a.state());
    CHECK(b.engine() == engine);
    CHECK(b.initial_seed() == 3);
    a.randn(three);
    b.randn(std::span(x).first(3));
    CHECK(std::equal(three.begin(), three.end(), x.begin()));
    a.rand(x), b.rand(y);
    CHECK(x == y);
    a.manual_seed(3), b.manual_seed(3);
    a.rand(x), b.rand(y);
    CHECK(x == y);
  }
  Generator generator;
  std::vector<uint64_t> state = generator.state();
  state.pop_back();
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { generator.set_state(state); }), "state"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [] { random_engine("mt"); }), "mt19937"));
}

TEST_CASE("streams of xoshiro256++ that are a jump apart differ") {
  Xoshiro256 a(1), b(1);
  b.jump();
  for (int i = 0; i < 100; ++i) CHECK(a.next_u64() != b.next_u64());
}

TEST_CASE("scopes choose and restore this thread's generator, forks nest") {
  Generator mine(5);
  const GeneratorScope scope(mine);
  CHECK(&current_generator() == &mine);
  const uint64_t first = Generator(5).next_u64();
  {
    const ForkScope outer;
    CHECK(current_generator().next_u64() == first);
    {
      const ForkScope inner;
      current_generator().manual_seed(9);
      current_generator().next_u64();
    }
    CHECK(current_generator().initial_seed() == 5);
    CHECK(current_generator().next_u64() != first);
  }
  CHECK(current_generator().next_u64() == first);
  uint64_t other = 0;
  std::thread([&] {
    CHECK(&current_generator() != &mine);
    other = current_generator().next_u64();
  }).join();
  CHECK(other != 0);
}

TEST_CASE("many integers are those that are drawn one by one, wherever the engine stands") {
  for (RandomEngine engine :
       {RandomEngine::kPhilox, RandomEngine::kXoshiro256, RandomEngine::kMt19937}) {
    for (uint64_t range : {uint64_t{1}, uint64_t{3}, uint64_t{1000}, (uint64_t{1} << 28) - 1,
                           uint64_t{1} << 28, (uint64_t{1} << 63) - 5, uint64_t{3} << 62}) {
      for (int before : {0, 1, 2, 4, 7}) {
        for (size_t n : {size_t{1}, size_t{15}, size_t{16}, size_t{700}}) {
          Generator many(9, engine), single(9, engine);
          for (int i = 0; i < before; ++i) many.next_u32(), single.next_u32();
          // What is rejected differs: three quarters of the range reject every fourth word.
          const auto low = range >> 62 == 3 ? std::numeric_limits<int64_t>::min() : int64_t{-7};
          std::vector<int64_t> got(n), want(n);
          const auto high = static_cast<int64_t>(static_cast<uint64_t>(low) + range);
          many.randint(got, low, high);
          for (int64_t& x : want) {
            uint64_t number = 0;
            if (engine == RandomEngine::kMt19937) {
              number = (range < (1 << 28) ? single.next_u32() : single.next_u64()) % range;
            } else {
              unsigned __int128 product;
              do {
                product = static_cast<unsigned __int128>(single.next_u64()) * range;
              } while (static_cast<uint64_t>(product) < -range % range);
              number = static_cast<uint64_t>(product >> 64);
            }
            x = static_cast<int64_t>(static_cast<uint64_t>(low) + number);
          }
          REQUIRE(got == want);
          REQUIRE(many.next_u32() == single.next_u32());
        }
      }
    }
  }
}
