// What modules need while a training step is recorded: random numbers, and a place for the states
// that they change.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lib/graph/tensor.h"

namespace lumen::nn {

using graph::Tensor;

// While it lives, what is random on this thread (dropout) draws with `key` (int32 [2]: seed, step;
// usually a graph::input, set before each run) from streams numbered in the order of use. Scopes
// nest.
class RandomScope {
 public:
  explicit RandomScope(const Tensor& key, int64_t first_stream = 0);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;

  // The innermost scope of this thread; throws Error(kMalformed) naming `user` without one.
  static RandomScope& current(const char* user);

  const Tensor& key() const { return key_; }
  int64_t next_stream() { return stream_++; }

 private:
  friend Tensor checkpoint(const std::function<Tensor(std::span<const Tensor>)>&,
                           std::span<const Tensor>);
  RandomScope* previous_;
  Tensor key_;
  int64_t stream_;
};

// While it lives, new values of states (running statistics) are collected: outputs that a training
// plan must have besides loss and gradients, so that the states change. Scopes nest.
class UpdateScope {
 public:
  UpdateScope();
  ~UpdateScope();
  UpdateScope(const UpdateScope&) = delete;

  const std::vector<Tensor>& updates() const { return updates_; }

  // Adds to the innermost scope; throws Error(kMalformed) naming `user` without one.
  static void add(const char* user, const Tensor& update);

 private:
  UpdateScope* previous_;
  std::vector<Tensor> updates_;
};

// autograd::checkpoint for bodies made of modules: when the body is computed again, it draws the
// same random numbers, has the same precision, and changes states no second time.
Tensor checkpoint(const std::function<Tensor(std::span<const Tensor> inputs)>& body,
                  std::span<const Tensor> inputs);

}  // namespace lumen::nn
