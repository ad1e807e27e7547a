// Modules: what has a mode, train or evaluate, and parts that have one too.
//
// Layers without a mode (Linear, Conv2d, norms, activations) are plain values with a call operator
// x → y; containers take both. The names of parameters come from the Parameters tree, not from
// here.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/nn/parameters.h"

namespace lumen::nn {

// Not thread-safe while the mode changes.
class Module {
 public:
  virtual ~Module() = default;

  // Throws Error(kUnsupported) for modules that are called otherwise.
  virtual Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }

  // Modules start in training mode, as PyTorch's, which has an effect inside an nn::TrainingScope:
  // outside, everything is inference. Sets this one and all inside it, no other.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  // Calls visit for each part that is a module, with its name.
  using Visitor = FunctionRef<void(const std::string& name, Module& child)>;
  virtual void visit_children(Visitor) {}

 private:
  bool training_ = true;
};

// Any layer as a module.
template <typename Layer>
class Callable final : public Module {
 public:
  explicit Callable(Layer value) : layer(std::move(value)) {}
  Tensor forward(const Tensor& x) const override { return layer(x); }

  Layer layer;
};

// --- Containers, whose parts are constructed in place: T(parameters / name, arguments…), or
// T(arguments…) if T has no parameters. Every add returns the new part, which stays where it is.

class Container : public Module {
 public:
  explicit Container(const Parameters& parameters) : parameters_(parameters) {}

  size_t size() const { return parts_.size(); }
  // Throws Error(kMalformed) if there is none.
  Module& operator[](size_t index) const;
  Module& operator[](const std::string& name) const;
  void visit_children(Visitor visit) override;

 protected:
  template <typename T, typename... Arguments>
  T& add_part(const std::string& name, Arguments&&... arguments) {
    if constexpr (std::is_constructible_v<T, Parameters, Arguments...>) {
      return hold(name, T(parameters_ / name, std::forward<Arguments>(arguments)...));
    } else {
      return hold(name, T(std::forward<Arguments>(arguments)...));
    }
  }

 private:
  template <typename T>
  T& hold(const std::string& name, T part) {
    if constexpr (std::is_base_of_v<Module, T>) {
      auto owned = std::make_unique<T>(std::move(part));
      T& place = *owned;
      parts_.emplace_back(name, std::move(owned));
      return place;
    } else {
      auto owned = std::make_unique<Callable<T>>(std::move(part));
      T& place = owned->layer;
      parts_.emplace_back(name, std::move(owned));
      return place;
    }
  }

  Parameters parameters_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> parts_;
};

// One after the other; parts are named "0", "1", ….
class Sequential : public Container {
 public:
  using Container::Container;
  template <typename T, typename... Arguments>
  T& add(Arguments&&... arguments) {
    return add_part<T>(str(size()), std::forward<Arguments>(arguments)...);
  }
  Tensor forward(const Tensor& x) const override;
};

// Parts named "0", "1", … that their owner calls as it likes.
class ModuleList : public Container {
 public:
  using Container::Container;
  template <typename T, typename... Arguments>
  T& add(Arguments&&... arguments) {
    return add_part<T>(str(size()), std::forward<Arguments>(arguments)...);
  }
};

// Parts with names of their own.
class ModuleDict : public Container {
 public:
  using Container::Container;
  template <typename T, typename... Arguments>
  T& add(const std::string& name, Arguments&&... arguments) {
    return add_part<T>(name, std::forward<Arguments>(arguments)...);
  }
};

// x + body(x), the parts of the body one after the other.
class Residual : public Sequential {
 public:
  using Sequential::Sequential;
  Tensor forward(const Tensor& x) const override;
};

}  // namespace lumen::nn
