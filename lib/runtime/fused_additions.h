// Additions to the experts of a layer as PEFT has them for transformers 5.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "lib/io/json.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::runtime {

// In transformers 5 experts are one parameter for gates and ups and one for downs
// (target_parameters), each with an A [experts · rank, in] and a B [out, rank · experts]. Of two
// targets the first is "experts.base_layer", the other, or a single one, "experts".
class FusedAdditions {
 public:
  FusedAdditions(const io::Json& adapter_config, const io::Json& model_config)
      : adapter_config_(adapter_config), model_config_(model_config) {}

  // Takes the tensor of the file if it is of such an addition and of floats.
  bool take(std::string_view name, const Array& array);

  // Puts additions to each expert's own matrices into `tensors`, and into `paths` what PEFT calls
  // the parameters that they are of. Throws Error: kMalformed (parameters that target_parameters
  // does not name), kMismatch (factors of other shapes).
  void split(NamedArrays& tensors, std::map<std::string, std::string>& paths) const;

 private:
  struct Pair {
    Array a, b;
  };

  bool is_target(const std::string& path) const;
  void split(const std::string& layer, const std::string& target, const Pair& pair,
             NamedArrays& tensors, std::map<std::string, std::string>& paths) const;

  const io::Json &adapter_config_, &model_config_;
  std::map<std::string, std::array<Pair, 2>> layers_;  // by the layer; inner, outer
};

}  // namespace lumen::runtime
