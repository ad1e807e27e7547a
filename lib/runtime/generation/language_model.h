// A loaded language model: weights, compiled prefill and decode plans, and the KV cache they share.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/base/pool.h"
#include "lib/io/model_files.h"
#include "lib/tensor/array.h"

namespace lumen::models {
class CausalLm;
}

namespace lumen::runtime {

// What loading needs and found, for --stats and error messages.
struct MemoryPlan {
  uint64_t weight_bytes = 0;  // of the file, mapped
  uint64_t read_bytes = 0;    // of weights that decoding one token reads: those of products
                              // (at most, until they are repacked)
  uint64_t packed_bytes = 0;  // of weights repacked from it, whose pages it gives back (as their
                              // first panels promise, until they are repacked)
  uint64_t kv_bytes = 0;
  uint64_t scratch_bytes = 0;    // arenas of the compiled plans
  uint64_t available_bytes = 0;  // what the system had left before the KV cache was allocated
  std::string notice;            // why the weights are not repacked; "" if they are
};

struct LoadOptions {
  int64_t context = 0;          // positions of the KV cache; 0: the model's own, at most 4096
  int64_t slots = 1;            // texts kept at once, each with a KV cache of its own
  bool fewer_slots = false;     // fewer will do if half of the memory left holds no more
  DType kv_type = DType::kF16;  // f32 f16 or q8_0
  int threads = 0;              // 0: default_thread_count()
  std::vector<std::string>
      overrides;  // "key=value" replacing config values, checked against tensors
  std::vector<std::string> lora = {};  // adapters to apply, as read_adapters takes them
  bool allow_nonfinite = false;        // accept NaN or infinite weights
  bool repack = true;         // keep the weights of products in panels (lib/kernels/panels.h)
  uint64_t memory_limit = 0;  // most bytes for KV cache and repacked weights; 0: what is left
  // Told what will be needed before it is allocated; only file, KV cache and what is available are
  // known then.
  std::function<void(const MemoryPlan&)> announce = {};
};

// One text's worth of state, or several: the slots. Not thread-safe; the pool inside uses several
// threads.
class LanguageModel {
 public:
  // Most tokens of feed_each(): so many rows of a product get the bits that each gets alone,
  // whatever the type of the weights.
  static constexpr int64_t kMostVerified = 8;

  // Checks the config against the tensors and the tensors for NaN, estimates memory before
  // allocating it, compiles the decode plan. The weights are repacked share by share after the
  // first pass over them (where the copy does not fit the mapped file is used as it is). Throws
  // Error: kMalformed (missing, unexpected or misshapen tensors, NaN scales), kUnsupported
  // (architecture), kResource (does not fit in memory; names needed and available).
  static std::unique_ptr<LanguageModel> load(const io::ModelFiles& files,
                                             const LoadOptions& options);
  // A model that is being trained: reads the present weights of `model`, which must outlive it.
  // Keys and values are kept in float32.
  static std::unique_ptr<LanguageModel> share(const models::CausalLm& model, int64_t context,
                                              int threads);
  virtual ~LanguageModel() = default;

  // Begins to repack the weights on a thread of its own, while the caller waits for a person: the
  // next call that computes waits for the end, or until it is stopped. No bit depends on it.
  virtual void repack_ahead() {}
  // Repacks now what is still to be repacked, which passes would do share by share.
  virtual void repack() {}

  virtual int64_t vocab() const = 0;
  virtual int64_t context() const = 0;   // positions available in each slot
  virtual int64_t position() const = 0;  // positions used of the selected slot
  virtual int64_t max_positions() const { return context(); }  // the most that context() may be
  virtual const MemoryPlan& memory() const = 0;
  virtual ThreadPool& pool() = 0;

  // Whether rewind() can go back to any position; false for recurrent models, which keep no past
  // states.
  virtual bool keeps_positions() const { return true; }

  virtual int64_t slots() const { return 1; }
  // Makes `slot` < slots() the one that all but step() speak of; at first it is 0.
  virtual void select(int64_t slot) = 0;

  // Appends `tokens` (ids < vocab(), position() + size ≤ context(): the caller checks) and returns
  // the logits [vocab] after the last one, valid until the next call. One token at a time runs the
  // decode plan and allocates nothing. `stop`, if given, is polled all along, by a recurrent model
  // between chunks; when it becomes true the call returns an empty span and position() tells how
  // far it came.
  virtual std::span<const float> feed(std::span<const int32_t> tokens,
                                      const std::atomic<bool>* stop = nullptr) = 0;

  // Appends 2 to kMostVerified tokens and returns the logits [tokens, vocab] after each, valid
  // until the next call: what feed() gives for one after the other, in one pass over the weights.
  // Needs keeps_positions(). Allocates nothing for numbers of tokens that were prepared.
  virtual std::span<const float> feed_each(std::span<const int32_t> tokens) = 0;
  // Compiles what feed_each() needs for these numbers of tokens, once; nothing as long as weights
  // are repacked.
  virtual void prepare(std::span<const int64_t> token_counts) = 0;

  // Appends tokens[i] to the text of slots[i], all different, and returns the logits [slots, vocab]
  // after each, valid until the next call: what feed() gives for each alone, in as few passes over
  // the weights as that allows. The first call with a number of slots compiles its plan.
  virtual std::span<const float> step(std::span<const int32_t> slots,
                                      std::span<const int32_t> tokens) = 0;

  // Logits of every position of `tokens`, float32 [tokens, vocab], starting from an empty cache.
  virtual Array logits(std::span<const int32_t> tokens) = 0;

  // Forgets all positions ≥ `position`; a recurrent model, which keeps no past states, forgets
  // everything: position() tells.
  virtual void rewind(int64_t position) = 0;

  // What the KV cache holds of the first `positions` ≤ position(), piece by piece: for each layer,
  // for keys and values, for each head its rows, as bytes. A model gives always as many bytes per
  // position. Needs keeps_positions().
  virtual void save_state(int64_t positions,
                          FunctionRef<void(std::span<const std::byte>)> sink) const = 0;
  // Takes over the first `positions` ≤ context() of what save_state() of a model with this
  // fingerprint() gave for `stored` positions, `bytes`; position() is then `positions`.
  virtual void load_state(int64_t positions, int64_t stored, std::span<const std::byte> bytes) = 0;
  virtual uint64_t position_bytes() const = 0;
  // A hash of config, type of the KV cache, adapter and samples of the weights: models with the
  // same one give the same state for the same tokens.
  virtual std::string fingerprint() const = 0;
};

}  // namespace lumen::runtime
