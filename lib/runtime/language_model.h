// A loaded language model: weights, compiled prefill and decode plans, and the KV cache they share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/pool.h"
#include "lib/io/model_files.h"
#include "lib/tensor/array.h"

namespace lumen::models {
class CausalLm;
}

namespace lumen::runtime {

struct LoadOptions {
  int64_t context = 0;          // positions of the KV cache; 0: the model's own, at most 4096
  DType kv_type = DType::kF16;  // f32 f16 or q8_0
  int threads = 0;              // 0: default_thread_count()
  std::vector<std::string>
      overrides;                 // "key=value" replacing config values, checked against tensors
  std::string lora;              // directory of a LoRA adapter to apply; "": none
  bool allow_nonfinite = false;  // accept NaN or infinite weights
  bool repack = true;            // keep the weights of products in panels (lib/kernels/panels.h)
  uint64_t memory_limit = 0;     // most bytes for KV cache and repacked weights; 0: what is left
};

// What loading needs and found, for --stats and error messages.
struct MemoryPlan {
  uint64_t weight_bytes = 0;  // of the file, mapped
  uint64_t read_bytes = 0;    // of weights that decoding one token reads: those of products
  uint64_t packed_bytes = 0;  // of weights repacked from it, whose pages it gave back
  uint64_t kv_bytes = 0;
  uint64_t scratch_bytes = 0;  // arenas of the compiled plans
  std::string notice;          // why the weights were not repacked; "" if they were or need not be
};

// One conversation's worth of state. Not thread-safe; the pool inside uses several threads.
class LanguageModel {
 public:
  // Checks the config against the tensors, estimates memory before allocating it, repacks weights
  // (where the copy does not fit the mapped file is used as it is), compiles the decode plan.
  // Throws Error: kMalformed (missing, unexpected or misshapen tensors, NaN scales), kUnsupported
  // (architecture), kResource (does not fit in memory; names needed and available).
  static std::unique_ptr<LanguageModel> load(const io::ModelFiles& files,
                                             const LoadOptions& options);
  // A model that is being trained: reads the present weights of `model`, which must outlive it.
  // Keys and values are kept in float32.
  static std::unique_ptr<LanguageModel> share(const models::CausalLm& model, int64_t context,
                                              int threads);
  virtual ~LanguageModel() = default;

  virtual int64_t vocab() const = 0;
  virtual int64_t context() const = 0;   // positions available
  virtual int64_t position() const = 0;  // positions used
  virtual const MemoryPlan& memory() const = 0;
  virtual ThreadPool& pool() = 0;

  // Appends `tokens` (ids < vocab(), position() + size ≤ context(): the caller checks) and returns
  // the logits [vocab] after the last one, valid until the next call. One token at a time runs the
  // decode plan and allocates nothing. `stop`, if given, is polled between prefill chunks; when it
  // becomes true the call returns an empty span and position() tells how far it came.
  virtual std::span<const float> feed(std::span<const int32_t> tokens,
                                      const volatile bool* stop = nullptr) = 0;

  // Logits of every position of `tokens`, float32 [tokens, vocab], starting from an empty cache.
  virtual Array logits(std::span<const int32_t> tokens) = 0;

  // Forgets all positions ≥ `position`; a recurrent model, which keeps no past states, forgets
  // everything: position() tells.
  virtual void rewind(int64_t position) = 0;
};

}  // namespace lumen::runtime
