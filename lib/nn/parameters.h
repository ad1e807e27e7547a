// The parameter tree: constructing a module is loading it.
//
// A module's constructor asks for its parameters by name and shape; the path of the tree is the
// parameter's name in the checkpoint. The same constructor reads a file or initialises at random.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "lib/base/strings.h"
#include "lib/graph/tensor.h"

namespace lumen::nn {

using graph::Tensor;

// A place in the tree ("model.layers.0."). Cheap to copy; all copies share what was asked for.
class Parameters {
 public:
  // Parameters of a checkpoint. The arrays are shared, not copied.
  static Parameters from_checkpoint(const std::map<std::string, Array>& arrays);
  // Parameters drawn at random as they are asked for: normal with deviation 0.02, ones for names
  // ending in "norm.weight", zeros for biases. `dtype` is that of matrices; vectors are float32.
  static Parameters random(uint64_t seed, DType dtype = DType::kF32);

  // The branch `name` of this place: Parameters("model") / "layers" / "0".
  Parameters operator/(const std::string& name) const;

  // The parameter `name`, which must have this shape. What is missing or misshapen is collected
  // and reported by check(), so that one message names it all.
  Tensor get(const std::string& name, const Shape& shape) const;
  // The same, as float32 whatever its stored type (norms, biases: small).
  Tensor get_f32(const std::string& name, const Shape& shape) const;
  // Whether the checkpoint has it (at random: no).
  bool has(const std::string& name) const;

  // Throws Error(kMalformed) listing up to ten missing and misshapen parameters with expected and
  // found shapes. Returns the names in the checkpoint that nobody asked for.
  std::vector<std::string> check() const;

  // All parameters handed out so far, by full name.
  const std::map<std::string, Tensor>& named() const;

 private:
  struct Tree;
  std::shared_ptr<Tree> tree_;
  std::string prefix_;
};

}  // namespace lumen::nn
