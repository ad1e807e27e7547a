#include "lib/base/generator.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>

#include "lib/base/box_muller.h"
#include "lib/base/error.h"

namespace lumen {
namespace {

constexpr std::string_view kNames[] = {"philox", "xoshiro256++", "mt19937"};
constexpr int kGroup = kNormalGroup;

std::variant<Philox, Xoshiro256, Mt19937> make_engine(RandomEngine engine, uint64_t seed,
                                                      uint64_t stream = 0) {
  if (engine == RandomEngine::kXoshiro256) return Xoshiro256(seed);
  if (engine == RandomEngine::kMt19937) return Mt19937(seed);
  return Philox(seed, stream);
}

void uniform(auto& engine, std::span<float> out) {
  for (float& x : out) x = static_cast<float>(engine.next_u32() & 0xffffff) * 0x1p-24f;
}
void uniform(auto& engine, std::span<double> out) {
  constexpr uint64_t kBits53 = (uint64_t{1} << 53) - 1;
  for (double& x : out) x = static_cast<double>(engine.next_u64() & kBits53) * 0x1p-53;
}

// Groups of 16; an incomplete last group is the last 16 numbers drawn again.
template <typename T>
void normal_groups(auto& engine, std::span<T> out) {
  uniform(engine, out);
  for (size_t i = 0; i + kGroup <= out.size(); i += kGroup) box_muller(out.data() + i);
  if (out.size() % kGroup == 0) return;
  const std::span<T> last = out.last(kGroup);
  uniform(engine, last);
  box_muller(last.data());
}

// Uniform in [0, bound) without modulo bias (Lemire 2019): of a 64-bit word whose product is not
// below `least`, its upper half.
class Below {
 public:
  explicit Below(uint64_t bound) : bound_(bound), least_(-bound % bound) {}
  // False: another word is to be drawn.
  bool take(uint64_t word, uint64_t& number) const {
    const auto product = static_cast<unsigned __int128>(word) * bound_;
    number = static_cast<uint64_t>(product >> 64);
    return static_cast<uint64_t>(product) >= least_;
  }

 private:
  uint64_t bound_, least_;
};

uint64_t below(auto& engine, uint64_t bound) {
  const Below rule(bound);
  uint64_t number;
  while (!rule.take(engine.next_u64(), number)) {
  }
  return number;
}

// out[i] = low + below(engine, bound), one after the other.
void fill_below(auto& engine, uint64_t bound, uint64_t low, std::span<int64_t> out) {
  const Below rule(bound);
  for (int64_t& x : out) {
    uint64_t number;
    while (!rule.take(engine.next_u64(), number)) {
    }
    x = static_cast<int64_t>(low + number);
  }
}

// Two words of 64 bits of each block of the counter.
void fill_below(Philox& engine, uint64_t bound, uint64_t low, std::span<int64_t> out) {
  const Below rule(bound);
  uint64_t number;
  auto draw = [&] {
    while (!rule.take(engine.next_u64(), number)) {
    }
    return static_cast<int64_t>(low + number);
  };
  size_t i = 0;
  if (engine.offset() % 2 == 0) {
    while (i < out.size() && engine.offset() % 4 != 0) out[i++] = draw();
    const Philox copy = engine;  // whose members nothing else can change
    uint64_t at = engine.offset();
    for (; i + 2 <= out.size(); at += 4) {
      const std::array<uint32_t, 4> words = copy.block(at / 4);
      if (rule.take(words[0] | uint64_t{words[1]} << 32, number)) {
        out[i++] = static_cast<int64_t>(low + number);
      }
      if (rule.take(words[2] | uint64_t{words[3]} << 32, number)) {
        out[i++] = static_cast<int64_t>(low + number);
      }
    }
    engine.set_offset(at);
  }
  while (i < out.size()) out[i++] = draw();
}

// PyTorch's: by modulo, from 32 bits for small ranges. The remainder of 32 bits by multiplication
// (Lemire, Kaser & Kurz 2019): ⌈2⁶⁴ / bound⌉ · x modulo 2⁶⁴ is the fraction of x / bound.
void fill_below(Mt19937& engine, uint64_t bound, uint64_t low, std::span<int64_t> out) {
  constexpr uint64_t kWide = uint64_t{1} << 28;
  if (bound >= kWide) {
    for (int64_t& x : out) x = static_cast<int64_t>(low + engine.next_u64() % bound);
    return;
  }
  const uint64_t inverse = ~uint64_t{0} / bound + 1;  // 0 for 1, whose remainders are 0
  for (int64_t& x : out) {
    const auto rest = static_cast<unsigned __int128>(inverse * engine.next_u32()) * bound;
    x = static_cast<int64_t>(low + static_cast<uint64_t>(rest >> 64));
  }
}

// PyTorch's rule for permutations differs from that for integers.
uint64_t below_in_permutation(auto& engine, uint64_t bound, uint64_t) {
  return below(engine, bound);
}
uint64_t below_in_permutation(Mt19937& engine, uint64_t bound, uint64_t n) {
  constexpr uint64_t kWide = std::numeric_limits<uint32_t>::max() / 20;
  return n < kWide ? engine.next_u32() % bound : engine.next_u64() % bound;
}

thread_local Generator* generator_of_scope = nullptr;

}  // namespace

Generator::Generator(uint64_t seed, RandomEngine engine)
    : seed_(seed), engine_(make_engine(engine, seed)) {}

void Generator::manual_seed(uint64_t seed) {
  engine_ = make_engine(engine(), seed);
  seed_ = seed;
  has_spare_ = false;
}

uint32_t Generator::next_u32() {
  return std::visit([](auto& engine) { return engine.next_u32(); }, engine_);
}
uint64_t Generator::next_u64() {
  return std::visit([](auto& engine) { return engine.next_u64(); }, engine_);
}

void Generator::rand(std::span<float> out) {
  std::visit([&](auto& engine) { uniform(engine, out); }, engine_);
}
void Generator::rand(std::span<double> out) {
  std::visit([&](auto& engine) { uniform(engine, out); }, engine_);
}

double Generator::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  double pair[2];
  rand(std::span<double>(pair));
  const double radius = std::sqrt(-2 * std::log1p(-pair[1]));
  const double angle = 2 * std::numbers::pi * pair[0];
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

void Generator::randn(std::span<float> out) {
  if (out.size() < kGroup) {
    for (float& x : out) x = static_cast<float>(normal());
  } else {
    std::visit([&](auto& engine) { normal_groups(engine, out); }, engine_);
  }
}
void Generator::randn(std::span<double> out) {
  if (out.size() < kGroup) {
    for (double& x : out) x = normal();
  } else {
    std::visit([&](auto& engine) { normal_groups(engine, out); }, engine_);
  }
}

void Generator::randint(std::span<int64_t> out, int64_t low, int64_t high) {
  if (low >= high) {
    fail(ErrorKind::kMalformed, "there is no integer from ", low, " up to and without ", high);
  }
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  std::visit([&](auto& engine) { fill_below(engine, range, static_cast<uint64_t>(low), out); },
             engine_);
}

void Generator::randperm(std::span<int64_t> out) {
  std::iota(out.begin(), out.end(), int64_t{0});
  const uint64_t n = out.size();
  std::visit(
      [&](auto& engine) {
        for (uint64_t i = 0; i + 1 < n; ++i) {
          std::swap(out[i], out[i + below_in_permutation(engine, n - i, n)]);
        }
      },
      engine_);
}

// engine, seed, whether there is a spare normal, its bits, then the engine's own words.
std::vector<uint64_t> Generator::state() const {
  std::vector<uint64_t> words = {engine_.index(), seed_, uint64_t{has_spare_},
                                 std::bit_cast<uint64_t>(has_spare_ ? spare_ : 0.0)};
  if (const auto* philox = std::get_if<Philox>(&engine_)) {
    words.insert(words.end(), {philox->seed(), philox->stream(), philox->offset()});
  } else if (const auto* xoshiro = std::get_if<Xoshiro256>(&engine_)) {
    words.insert(words.end(), xoshiro->state().begin(), xoshiro->state().end());
  } else {
    const Mt19937::State& mt = std::get<Mt19937>(engine_).state();
    words.push_back(static_cast<uint64_t>(mt.used));
    words.insert(words.end(), mt.words.begin(), mt.words.end());
  }
  return words;
}

void Generator::set_state(std::span<const uint64_t> state) {
  constexpr size_t kHead = 4, kSizes[] = {3, 4, 1 + Mt19937::kWords};
  const bool fits = state.size() >= kHead && state[0] < std::size(kSizes) &&
                    state.size() == kHead + kSizes[state[0]] && state[2] <= 1;
  if (!fits) fail(ErrorKind::kMalformed, "this is not the state of a random generator");
  const auto own = state.subspan(kHead);
  const auto engine = static_cast<RandomEngine>(state[0]);
  if (engine == RandomEngine::kPhilox) {
    Philox philox(own[0], own[1]);
    philox.set_offset(own[2]);
    engine_ = philox;
  } else if (engine == RandomEngine::kXoshiro256) {
    const Xoshiro256::State words = {own[0], own[1], own[2], own[3]};
    if (words == Xoshiro256::State{}) {
      fail(ErrorKind::kMalformed, "the state of a random generator is all zero");
    }
    engine_ = Xoshiro256(words);
  } else {
    Mt19937::State mt{};
    mt.used = static_cast<int>(std::min<uint64_t>(own[0], Mt19937::kWords));
    for (int i = 0; i < Mt19937::kWords; ++i) mt.words[i] = static_cast<uint32_t>(own[1 + i]);
    engine_ = Mt19937(mt);
  }
  seed_ = state[1];
  has_spare_ = state[2] == 1;
  spare_ = std::bit_cast<double>(state[3]);
}

Generator& current_generator() {
  static std::atomic<uint64_t> threads{0};
  thread_local Generator own = [] {
    Generator generator;
    const uint64_t state[] = {0, 0, 0, 0, 0, threads++, 0};
    generator.set_state(state);
    return generator;
  }();
  return generator_of_scope ? *generator_of_scope : own;
}

GeneratorScope::GeneratorScope(Generator& generator) : previous_(generator_of_scope) {
  generator_of_scope = &generator;
}
GeneratorScope::~GeneratorScope() {
  generator_of_scope = previous_;
}

std::string_view name(RandomEngine engine) {
  return kNames[static_cast<size_t>(engine)];
}

RandomEngine random_engine(const std::string& text) {
  const auto found = std::ranges::find(kNames, text);
  if (found == std::end(kNames)) {
    fail(ErrorKind::kMalformed, "there is no random engine ", quoted(text), "; known: ", kNames[0],
         ", ", kNames[1], ", ", kNames[2]);
  }
  return static_cast<RandomEngine>(found - std::begin(kNames));
}

}  // namespace lumen
