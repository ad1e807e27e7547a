#include "lib/nn/parameters.h"

#include "lib/base/error.h"
#include "lib/base/random.h"
#include "lib/graph/views.h"
#include "lib/kernels/convert.h"

namespace lumen::nn {

struct Parameters::Tree {
  std::map<std::string, Array> arrays;
  std::map<std::string, Tensor> handed_out;
  std::vector<std::string> problems;
  bool is_random = false;
  Philox random{0};
  DType random_dtype = DType::kF32;
};

namespace {

constexpr size_t kMostProblems = 10;

Array random_array(const std::string& name, const Shape& shape, DType matrix_dtype,
                   Philox& random) {
  const DType dtype = shape.rank() > 1 ? matrix_dtype : DType::kF32;
  Array array = Array::zeros(dtype, shape);
  std::vector<float> values(shape.elements());
  const bool norm = name.ends_with("norm.weight"), bias = name.ends_with(".bias");
  for (float& value : values) {
    value = norm ? 1.0f : bias ? 0.0f : static_cast<float>(0.02 * random.normal());
  }
  kernels::from_float(dtype, values.data(), array.mutable_data(), shape.elements());
  return array;
}

}  // namespace

Parameters Parameters::from_checkpoint(const std::map<std::string, Array>& arrays) {
  Parameters root;
  root.tree_ = std::make_shared<Tree>();
  root.tree_->arrays = arrays;
  return root;
}

Parameters Parameters::random(uint64_t seed, DType dtype) {
  Parameters root;
  root.tree_ = std::make_shared<Tree>();
  root.tree_->is_random = true;
  root.tree_->random = Philox(seed);
  root.tree_->random_dtype = dtype;
  return root;
}

Parameters Parameters::operator/(const std::string& name) const {
  Parameters branch = *this;
  branch.prefix_ += name + ".";
  return branch;
}

Tensor Parameters::get(const std::string& name, const Shape& shape) const {
  const std::string full = prefix_ + name;
  if (auto known = tree_->handed_out.find(full); known != tree_->handed_out.end()) {
    if (known->second.shape() == shape) return known->second;
  }
  auto found = tree_->arrays.find(full);
  if (found == tree_->arrays.end() && tree_->is_random) {
    Array array = random_array(full, shape, tree_->random_dtype, tree_->random);
    found = tree_->arrays.emplace(full, std::move(array)).first;
  }
  Tensor tensor;
  if (found == tree_->arrays.end()) {
    tree_->problems.push_back(str(quoted(full), " is missing"));
  } else if (!(found->second.shape() == shape)) {
    tree_->problems.push_back(str(quoted(full), " has shape ", to_string(found->second.shape()),
                                  ", expected ", to_string(shape)));
  } else if (!is_float(found->second.dtype()) && !is_quantized(found->second.dtype())) {
    tree_->problems.push_back(str(quoted(full), " has type ", lumen::name(found->second.dtype()),
                                  ", expected a float or quantised type"));
  } else {
    tensor = graph::constant(found->second, full);
  }
  // A stand-in lets construction go on, so that check() can name everything that is wrong.
  if (!tensor.defined()) tensor = graph::input(DType::kF32, shape, full);
  tree_->handed_out[full] = tensor;
  return tensor;
}

Tensor Parameters::get_f32(const std::string& name, const Shape& shape) const {
  const Tensor stored = get(name, shape);
  if (stored.dtype() == DType::kF32) return stored;
  return graph::constant(graph::contiguous(stored, DType::kF32).eval(), prefix_ + name);
}

bool Parameters::has(const std::string& name) const {
  return tree_->arrays.count(prefix_ + name) > 0;
}

std::vector<std::string> Parameters::check() const {
  if (!tree_->problems.empty()) {
    std::string list;
    const size_t shown = std::min(kMostProblems, tree_->problems.size());
    for (size_t i = 0; i < shown; ++i) list += str(i ? "; " : "", tree_->problems[i]);
    if (shown < tree_->problems.size()) {
      list += str("; and ", tree_->problems.size() - shown, " more");
    }
    fail(ErrorKind::kMalformed, "the tensors do not fit the config: ", list);
  }
  std::vector<std::string> unused;
  for (const auto& [name, array] : tree_->arrays) {
    if (tree_->handed_out.count(name) == 0) unused.push_back(name);
  }
  return unused;
}

const std::map<std::string, Tensor>& Parameters::named() const {
  return tree_->handed_out;
}

}  // namespace lumen::nn
