#include "lib/graph/display.h"

#include <algorithm>

#include "lib/base/strings.h"
#include "lib/graph/mixed_precision.h"
#include "lib/graph/program.h"

namespace lumen::graph {
namespace {

using Numbers = NodeMap<int>;

Numbers number(const Graph& graph) {
  Numbers numbers;
  for (const NodePtr& node : graph.nodes()) {
    const int number = static_cast<int>(numbers.size());
    numbers[node.get()] = number;
  }
  return numbers;
}

std::string label(const Node& node) {
  std::string out(node.op->name);
  if (!node.name.empty()) out += " " + quoted(node.name);
  if (const std::string attrs = to_string(node.attrs); !attrs.empty()) out += " " + attrs;
  if (node.epilogue) out += " {" + to_string(*node.epilogue) + "}";
  return out;
}

std::string type(const Node& node) {
  return str(name(node.dtype), " ", to_string(node.shape));
}

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// " q8_0", but of float32 nothing.
std::string type_suffix(DType dtype) {
  return dtype == DType::kF32 ? "" : str(" ", name(dtype));
}

std::string shape_text(const Node& node) {
  return to_string(node.shape) + type_suffix(node.dtype);
}

// k of a product [..., m, k] · [..., k, n], or with one of the operands transposed, or of two that
// are combined; 0 of anything else.
int64_t depth_of_product(const Node& node) {
  if (node.op->kind != OpKind::kContraction || !node.op->cost || node.shape.rank() < 2) return 0;
  const Shape& a = node.inputs[0]->shape;
  const int64_t elements = node.shape.elements(), n = node.shape[-1];
  if (elements == 0 || a.rank() < 2 || a.elements() * n != elements * a[-1]) return 0;
  const double flops = 2 * static_cast<double>(elements) * static_cast<double>(a[-1]);
  const double all = node.op->cost(node).flops;
  return all == flops || all == 2 * flops ? a[-1] : 0;
}

std::string product_text(const Node& node, int64_t k) {
  const Node& weight = *node.inputs[1];
  const int64_t n = node.shape[-1];
  const int64_t m = weight.shape.rank() > 2 ? node.shape[-2] : node.shape.elements() / n;
  const auto count = static_cast<int64_t>(node.op->cost(node).flops / 2) / (m * n * k);
  return str(count > 1 ? str(count, " of ") : "", m, "×", n, "×", k, type_suffix(weight.dtype));
}

// The largest of those that are more than a list, if there are any.
const Node& most_telling_input(const Node& node) {
  const auto telling = [](const NodePtr& input) {
    return std::pair(input->shape.rank() > 1, input->shape.elements());
  };
  return **std::ranges::max_element(node.inputs, {}, telling);
}

std::string operands_text(const Node& node) {
  if (node.op->kind == OpKind::kContraction) {
    return str(shape_text(*node.inputs[0]), " · ", shape_text(*node.inputs[1]));
  }
  if (node.op->overwrites >= 0) return shape_text(*node.inputs[node.op->overwrites == 0 ? 1 : 0]);
  if (node.inputs.empty()) return shape_text(node);
  const Node& input = most_telling_input(node);
  if (node.shape.rank() < 2 && input.shape.rank() > 1) return shape_text(input);
  const bool larger = input.shape.elements() > node.shape.elements();
  return str(larger ? shape_text(input) + " → " : "", shape_text(node));
}

}  // namespace

std::string to_dot(const Graph& graph) {
  const Numbers numbers = number(graph);
  std::string out = "digraph {\n  rankdir=TB; node [fontname=\"sans-serif\", fontsize=10];\n";
  for (const NodePtr& node : graph.nodes()) {
    const char* style = node->op->kind == OpKind::kView   ? "shape=box, style=dashed"
                        : node->op->kind == OpKind::kLeaf ? "shape=ellipse"
                                                          : "shape=box";
    out += str("  n", numbers.at(node.get()), " [", style, ", label=\"", escaped(label(*node)),
               "\\n", type(*node), "\"];\n");
    for (const NodePtr& input : node->inputs) {
      out += str("  n", numbers.at(input.get()), " -> n", numbers.at(node.get()), ";\n");
    }
  }
  return out + "}\n";
}

std::string to_text(const Graph& graph) {
  const Numbers numbers = number(graph);
  std::string out;
  for (const NodePtr& node : graph.nodes()) {
    out += str("%", numbers.at(node.get()), " = ", label(*node), "(");
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      out += str(i ? ", %" : "%", numbers.at(node->inputs[i].get()));
    }
    out += str(") ", type(*node), "\n");
  }
  return out;
}

std::string step_name(const Node& node) {
  constexpr size_t kMostNames = 5;
  std::vector<std::string> names;
  if (node.op != &kFused) names.emplace_back(node.op->name);
  const size_t operations = names.size() + (node.epilogue ? node.epilogue->code.size() : 0);
  for (size_t i = 0; names.size() < std::min(operations, kMostNames); ++i) {
    names.emplace_back(node.epilogue->code[i].op->name);
  }
  const size_t more = operations - names.size();
  return join(names, "+") + (more > 0 ? str("+", more, " more") : "");
}

std::string step_shapes(const Node& node) {
  const int64_t k = depth_of_product(node);
  return str(k > 0 ? product_text(node, k) : operands_text(node), in_bf16(node) ? " in bf16" : "");
}

}  // namespace lumen::graph
