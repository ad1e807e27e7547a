// Training or inference: where random numbers come from, and what a step changes besides
// parameters.
#pragma once

#include <vector>

#include "lib/graph/tensor.h"

namespace lumen::nn {

using graph::Tensor;

// While it lives, networks built on this thread are in training: dropout draws from `key` (int32
// [2]: seed, step), each place from a stream of its own, numbered in the order of building; and
// batch normalisation uses the statistics of the batch. Without a scope, networks are built for
// inference. Scopes nest.
class TrainingScope {
 public:
  explicit TrainingScope(const Tensor& key);
  ~TrainingScope();
  TrainingScope(const TrainingScope&) = delete;

  // The innermost scope of this thread; null: inference.
  static TrainingScope* current();

  const Tensor& key() const { return key_; }
  int64_t next_stream() { return streams_++; }
  // The stream that comes next; setting it lets a part that is built again draw the same numbers.
  int64_t stream() const { return streams_; }
  void set_stream(int64_t stream) { streams_ = stream; }

  // States that the step overwrites (running statistics): to be outputs of its plan.
  void add_update(const Tensor& update) { updates_.push_back(update); }
  const std::vector<Tensor>& updates() const { return updates_; }

 private:
  Tensor key_;
  int64_t streams_ = 0;
  std::vector<Tensor> updates_;
  TrainingScope* outer_;
};

// Zero with probability p, else x / (1 − p), in training; x itself at inference (Srivastava et al.
// 2014).
Tensor dropout(const Tensor& x, double p);

}  // namespace lumen::nn
