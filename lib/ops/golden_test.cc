// Every operation against PyTorch: testdata/goldens/ops.safetensors, written by
// scripts/make_op_goldens.py, and layers.safetensors, by make_layer_goldens.py. A case is called
// BUILDER.VARIANT.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "lib/autograd/autograd.h"
#include "lib/base/testing.h"
#include "lib/graph/graph.h"
#include "lib/io/safetensors.h"
#include "lib/ops/golden_builders.h"
#include "lib/ops/ops.h"

using namespace lumen;
using graph::Tensor;

namespace {

struct Golden {
  std::map<std::string, Array> arrays;  // "i0", "o0", "s0", "g0" …
};

std::map<std::string, Golden> read_goldens() {
  std::map<std::string, Golden> goldens;
  for (const char* name : {"ops", "layers"}) {
    const auto file =
        io::read_safetensors(testing::source_path(str("testdata/goldens/", name, ".safetensors")));
    for (const auto& tensor : file->tensors) {
      const size_t dot = tensor.name.rfind('.');
      goldens[tensor.name.substr(0, dot)].arrays[tensor.name.substr(dot + 1)] = file->array(tensor);
    }
  }
  return goldens;
}

double tolerance_of(DType dtype, bool gradient) {
  switch (dtype) {
    case DType::kF32:
      return gradient ? 1e-5 : 2e-6;
    case DType::kF64:
      return 1e-12;
    case DType::kF16:
      return 2e-3;
    case DType::kBF16:
      return 1.6e-2;
    default:
      return 0;
  }
}

// The file is mapped read-only; a variable is memory to be written.
Array copied(const Array& array) {
  Array copy = Array::zeros(array.dtype(), array.shape());
  if (array.bytes() > 0) std::memcpy(copy.mutable_data(), array.data(), array.bytes());
  return copy;
}

std::vector<double> in_double(const Array& array) {
  const Array wide = graph::contiguous(graph::constant(array), DType::kF64).eval();
  const auto values = wide.as<double>();
  return {values.begin(), values.end()};
}

bool is_close(double got, double want, double tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= tolerance * (1 + std::abs(want));
}

void check_equal(const std::string& what, const Array& got, const Array& want, bool gradient) {
  INFO(what);
  CHECK(name(got.dtype()) == name(want.dtype()));
  REQUIRE(to_string(got.shape()) == to_string(want.shape()));
  const std::vector<double> x = in_double(got), y = in_double(want);
  if (got.dtype() == DType::kI64) {  // beyond what double can tell apart
    const auto a = got.as<int64_t>(), b = want.as<int64_t>();
    CHECK(std::equal(a.begin(), a.end(), b.begin()));
  }
  for (size_t i = 0; i < x.size(); ++i) {
    INFO("element " << i << ": got " << x[i] << ", want " << y[i]);
    if (!is_close(x[i], y[i], tolerance_of(want.dtype(), gradient))) {
      CHECK(false);
      return;
    }
  }
}

// Runs a case, compares it, and adds the operations that it went through to `seen`.
void check_case(const std::string& name, const Golden& golden, ops::GoldenBuild build,
                std::set<const graph::OpDef*>& seen) {
  std::vector<Tensor> inputs, wanted;
  for (size_t i = 0; golden.arrays.count(str("i", i)); ++i) {
    const Array& array = golden.arrays.at(str("i", i));
    const bool differentiated = golden.arrays.count(str("g", i)) > 0;
    inputs.push_back(differentiated ? autograd::variable(copied(array)) : graph::constant(array));
    if (differentiated) wanted.push_back(inputs.back());
  }
  const std::vector<Tensor> outputs = build(inputs);
  REQUIRE(golden.arrays.count(str("o", outputs.size() - 1)) == 1);
  REQUIRE(golden.arrays.count(str("o", outputs.size())) == 0);
  std::vector<Tensor> seeded, seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_equal(str("result ", i), outputs[i].eval(), golden.arrays.at(str("o", i)), false);
    const auto seed = golden.arrays.find(str("s", i));
    if (seed == golden.arrays.end()) continue;
    seeded.push_back(outputs[i]);
    seeds.push_back(graph::constant(seed->second));
  }
  std::vector<Tensor> gradients;
  if (!wanted.empty()) gradients = autograd::gradients(seeded, seeds, wanted);
  for (size_t i = 0, g = 0; i < inputs.size(); ++i) {
    const auto want = golden.arrays.find(str("g", i));
    if (want == golden.arrays.end()) continue;
    check_equal(str("gradient ", i), gradients[g++].eval(), want->second, true);
  }
  std::vector<graph::NodePtr> roots;
  for (const Tensor& x : outputs) roots.push_back(x.node());
  for (const Tensor& x : gradients) roots.push_back(x.node());
  const graph::Graph whole(std::move(roots));
  for (const graph::NodePtr& node : whole.nodes()) seen.insert(node->op);
}

// Operations that PyTorch has no counterpart of: random numbers (lib/kernels/random_fill_test.cc),
// whatever they are made into, and what only passes make.
constexpr std::string_view kElsewhere[] = {"uniform", "normal", "dropout", "pad_axes"};

}  // namespace

TEST_CASE("every operation computes what PyTorch does") {
  const std::map<std::string, Golden> goldens = read_goldens();
  auto builders = ops::golden_builders();
  ops::add_layer_builders(builders);
  std::set<const graph::OpDef*> seen;
  std::set<std::string> used;
  for (const auto& [name, golden] : goldens) {
    const std::string key = name.substr(0, name.find('.'));
    INFO("case " << name);
    const auto builder = builders.find(key);
    REQUIRE(builder != builders.end());
    used.insert(key);
    check_case(name, golden, builder->second, seen);
  }
  for (const auto& [key, builder] : builders) {
    INFO("no golden for builder " << key);
    CHECK(used.count(key) == 1);
  }
  for (const graph::OpDef* op : ops::op_list()) {
    const bool elsewhere = std::any_of(std::begin(kElsewhere), std::end(kElsewhere),
                                       [&](std::string_view name) { return name == op->name; });
    INFO("no golden for operation " << op->name);
    CHECK((elsewhere || seen.count(op) == 1));
  }
}
