// Plan: a compiled graph. Running it computes the outputs and allocates nothing.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "lib/base/pool.h"
#include "lib/graph/graph.h"
#include "lib/graph/passes/passes.h"

namespace lumen::graph {

struct CompileOptions {
  Pipeline pipeline = passes::default_pipeline();
  bool verified = false;  // run verify after each pass
  int threads = 0;        // most threads a run will use; 0: those of current_pool()
};

// A list of steps over one arena. Not thread-safe. Several plans may share constants and states.
class Plan {
 public:
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  // Computes all outputs from the current contents of inputs and states. Does not allocate. Throws
  // Error(kMalformed) if an index is out of range, Error(kUnsupported) under an ExactProductsScope
  // if it stores numbers in bfloat16 for products (AutocastScope), nothing else. `pool` has at most
  // the number of threads compiled for. Once `*stop` is true it returns false after the step that
  // it is at: outputs then mean nothing, and states may be written or not. Tells this thread's
  // observer of each step (plan_observer.h). Other threads and signal handlers may set `*stop`.
  bool run(ThreadPool& pool, const std::atomic<bool>* stop = nullptr);

  // The memory of an input: write before run(). `tensor` must come from graph::input(); false, or
  // Error(kMalformed), if the outputs do not depend on it.
  bool has_input(const Tensor& tensor) const;
  Array& input(const Tensor& tensor);
  // One of the inputs that the outputs depend on; null if there is none.
  const Node* any_input() const;

  // The i-th output, valid until the next run; of an operation that overwrites a state, that state.
  const Array& output(size_t i) const;

  // Bytes of the arena with intermediate results, outputs and workspace.
  size_t arena_bytes() const;

  // One line per step: operation, result shape, program; for tests and `display`.
  std::string text() const;
  size_t steps() const;

  struct Impl;  // internal to plan.cc
  explicit Plan(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// Compiles what computes `outputs`. Throws what passes and kernels' workspace allocation throw.
Plan compile(std::span<const NodePtr> outputs, const CompileOptions& options);
Plan compile(std::span<const Tensor> outputs, const CompileOptions& options = {});

}  // namespace lumen::graph
