#include "lib/graph/node.h"

#include "lib/base/error.h"
#include "lib/base/strings.h"

namespace lumen::graph {

const Attrs::Value& Attrs::find(std::string_view name) const {
  for (const auto& [key, value] : values_) {
    if (name == key) return value;
  }
  LUMEN_CHECK(!"attribute missing");
  __builtin_unreachable();
}

bool operator==(const Attrs& a, const Attrs& b) {
  if (a.values_.size() != b.values_.size()) return false;
  for (size_t i = 0; i < a.values_.size(); ++i) {
    if (std::string_view(a.values_[i].first) != b.values_[i].first) return false;
    if (a.values_[i].second != b.values_[i].second) return false;
  }
  return true;
}

std::string to_string(const Attrs& attrs) {
  std::string out;
  for (const auto& [name, value] : attrs) {
    out += str(out.empty() ? "" : " ", name, "=");
    if (auto* integer = std::get_if<int64_t>(&value)) out += str(*integer);
    if (auto* real = std::get_if<double>(&value)) out += str(*real);
    if (auto* list = std::get_if<std::vector<int64_t>>(&value)) {
      out += "[";
      for (size_t i = 0; i < list->size(); ++i) out += str(i ? ", " : "", (*list)[i]);
      out += "]";
    }
  }
  return out;
}

Node::~Node() {
  std::vector<NodePtr> pending = std::move(inputs);
  while (!pending.empty()) {
    NodePtr node = std::move(pending.back());
    pending.pop_back();
    if (node.use_count() != 1) continue;  // others keep it, or it is null: make_node refused it
    for (NodePtr& input : node->inputs) pending.push_back(std::move(input));
    node->inputs.clear();
  }
}

void refuse_undefined(std::string_view operation, std::string_view argument) {
  fail(ErrorKind::kMalformed, operation, ": ", argument,
       " is an undefined tensor: one that was never given a value");
}

NodePtr make_node(const OpDef& op, std::vector<NodePtr> inputs, Attrs attrs) {
  auto node = std::make_shared<Node>();
  node->op = &op;
  node->inputs = std::move(inputs);
  node->attrs = std::move(attrs);
  for (size_t i = 0; i < node->inputs.size(); ++i) {
    if (!node->inputs[i]) refuse_undefined(op.name, str("input ", i));
    const Node& input = *node->inputs[i];
    if (!in_panels(input.value.layout()) || (op.takes_panels && op.takes_panels(*node, i))) {
      continue;
    }
    fail(ErrorKind::kUnsupported, op.name, ": input ", i,
         input.name.empty() ? "" : str(" ", quoted(input.name)),
         " is a weight repacked for products, which only linear layers read");
  }
  const TypedShape result = op.infer(*node);
  check_extents(op.name, result.shape);
  node->dtype = result.dtype;
  node->shape = result.shape;
  return node;
}

}  // namespace lumen::graph
