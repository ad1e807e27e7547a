// Training or inference: where random numbers come from, and what a step changes besides
// parameters.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lib/graph/tensor.h"
#include "lib/ops/ops.h"

namespace lumen::nn {

using graph::Tensor;

// While it lives, networks built on this thread are in training: dropout draws from `key` (int32
// [2]: seed, step), each place from a stream of its own, numbered in the order of building; and
// batch normalisation uses the statistics of the batch. Without a scope, networks are built for
// inference. Scopes nest.
class TrainingScope {
 public:
  // `first_stream`: of the first place. `again`: what is built is computed a second time, so that
  // states are not to be moved.
  explicit TrainingScope(const Tensor& key, int64_t first_stream = 0, bool again = false);
  ~TrainingScope();
  TrainingScope(const TrainingScope&) = delete;

  // The innermost scope of this thread; null: inference.
  static TrainingScope* current();

  const Tensor& key() const { return key_; }
  int64_t next_stream() { return streams_++; }
  // The stream that comes next.
  int64_t stream() const { return streams_; }

  // Whether states are to be moved.
  bool moves_states() const { return !again_; }
  // States that the step overwrites (running statistics): to be outputs of its plan.
  void add_update(const Tensor& update) { updates_.push_back(update); }
  const std::vector<Tensor>& updates() const { return updates_; }

 private:
  Tensor key_;
  int64_t streams_;
  bool again_;
  std::vector<Tensor> updates_;
  TrainingScope* outer_;
};

// Zero with probability p, else x / (1 − p), in training; x itself at inference (Srivastava et al.
// 2014).
Tensor dropout(const Tensor& x, double p);

// The same of the weights of an attention: for ops::AttentionOptions. At inference p is 0.
ops::AttentionDropout attention_dropout(double p);

// autograd::checkpoint for bodies made of layers: when the body is computed again, after the scopes
// of the step may have ended, it draws the same random numbers in the same precision and does not
// move states again.
Tensor checkpoint(const std::function<Tensor(std::span<const Tensor> inputs)>& body,
                  std::span<const Tensor> inputs);

}  // namespace lumen::nn
