#include "lib/nn/module.h"

#include "lib/base/error.h"
#include "lib/ops/ops.h"

namespace lumen::nn {

Tensor Module::forward(const Tensor&) const {
  fail(ErrorKind::kUnsupported, "this module has no forward of one input");
}

void Module::train(bool on) {
  training_ = on;
  visit_children([on](const std::string&, Module& child) { child.train(on); });
}

Module& Container::operator[](size_t index) const {
  if (index >= parts_.size()) {
    fail(ErrorKind::kMalformed, "there is no module ", index, ": the container has ",
         parts_.size());
  }
  return *parts_[index].second;
}

Module& Container::operator[](const std::string& name) const {
  for (const auto& part : parts_) {
    if (part.first == name) return *part.second;
  }
  fail(ErrorKind::kMalformed, "the container has no module ", quoted(name));
}

void Container::visit_children(Visitor visit) {
  for (auto& part : parts_) visit(part.first, *part.second);
}

Tensor Sequential::forward(const Tensor& x) const {
  Tensor y = x;
  for (size_t i = 0; i < size(); ++i) y = (*this)[i](y);
  return y;
}

Tensor Residual::forward(const Tensor& x) const {
  return ops::add(x, Sequential::forward(x));
}

}  // namespace lumen::nn
