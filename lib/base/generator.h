// Generators: a random engine with the distributions of PyTorch, for one thread or scope.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lib/base/random.h"

namespace lumen {

enum class RandomEngine { kPhilox, kXoshiro256, kMt19937 };

// With kMt19937, manual_seed(s) is followed by the same numbers as torch.manual_seed(s) on a CPU
// (PyTorch 2.15): uniform numbers, integers and permutations bit for bit, float64 normals too;
// float32 normals up to the few ulp by which PyTorch's own vector code differs between CPUs.
// Not thread-safe; copies go their own ways from the same state.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0, RandomEngine engine = RandomEngine::kPhilox);

  // Starts again. The engine stays.
  void manual_seed(uint64_t seed);
  uint64_t initial_seed() const { return seed_; }
  RandomEngine engine() const { return static_cast<RandomEngine>(engine_.index()); }

  uint32_t next_u32();
  uint64_t next_u64();

  // Uniform in [0, 1): multiples of 2⁻²⁴, or 2⁻⁵³ in double.
  void rand(std::span<float> out);
  void rand(std::span<double> out);
  // Standard normal (Box-Muller): in groups of 16 from 16 numbers on, in pairs below, the second of
  // a pair being kept for the next call.
  void randn(std::span<float> out);
  void randn(std::span<double> out);
  // Integers in [low, high). Throws Error(kMalformed) if there are none.
  void randint(std::span<int64_t> out, int64_t low, int64_t high);
  // 0 … n−1 in random order.
  void randperm(std::span<int64_t> out);

  // Everything a continuation needs; set_state throws Error(kMalformed) if `state` is not what
  // state() of a generator gave. The engine becomes that of the state.
  std::vector<uint64_t> state() const;
  void set_state(std::span<const uint64_t> state);

 private:
  double normal();

  uint64_t seed_;
  std::variant<Philox, Xoshiro256, Mt19937> engine_;
  bool has_spare_ = false;
  double spare_ = 0;
};

// The generator of the innermost GeneratorScope on this thread, or this thread's own: Philox with
// seed 0, a stream per thread.
Generator& current_generator();

// While it lives, `generator` is this thread's.
class GeneratorScope {
 public:
  explicit GeneratorScope(Generator& generator);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;

 private:
  Generator* previous_;
};

// What is drawn while it lives leaves no trace: this thread's generator then goes on as if nothing
// had happened (torch.random.fork_rng). May be nested.
class ForkScope {
 public:
  ForkScope() : generator_(current_generator()), saved_(generator_) {}
  ~ForkScope() { generator_ = saved_; }
  ForkScope(const ForkScope&) = delete;

 private:
  Generator& generator_;
  Generator saved_;
};

// "philox", "xoshiro256++", "mt19937".
std::string_view name(RandomEngine engine);
// The engine of that name; throws Error(kMalformed) with the known ones.
RandomEngine random_engine(const std::string& name);

}  // namespace lumen
