#include "lib/graph/display.h"

#include "lib/base/strings.h"
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

}  // namespace lumen::graph
