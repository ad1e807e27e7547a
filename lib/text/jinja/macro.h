// Macros, and the bodies of call blocks.
#pragma once

#include <string>

#include "lib/text/jinja/interpreter.h"

namespace lumen::text::jinja {

class Macro final : public Callable {
 public:
  // `scope` is where the macro is defined: what its body sees.
  Macro(Heap& heap, const MacroDefinition& definition, Ref<Scope> scope)
      : Callable(heap, sizeof(Macro)), definition_(definition), scope_(std::move(scope)) {}

  Value call(Interpreter& interpreter, Arguments& arguments) override;
  std::string description() const override { return "Macro '" + definition_.name + "'"; }
  Value attribute(Interpreter& interpreter, std::string_view name) override;

 private:
  void forget() override { scope_ = {}; }
  void bind(Interpreter& interpreter, Arguments& arguments, const Ref<Scope>& scope);

  const MacroDefinition& definition_;
  Ref<Scope> scope_;
};

// A method together with its object, or a global function.
class BoundBuiltin final : public Callable {
 public:
  BoundBuiltin(Heap& heap, const Builtin& builtin, Value subject)
      : Callable(heap, sizeof(BoundBuiltin)), builtin_(builtin), subject_(std::move(subject)) {}

  Value call(Interpreter& interpreter, Arguments& arguments) override {
    return builtin_.run(interpreter, subject_, arguments);
  }
  std::string description() const override {
    return "built-in function " + std::string(builtin_.name);
  }
  Value attribute(Interpreter& interpreter, std::string_view name) override;

 private:
  void forget() override { subject_ = {}; }
  const Builtin& builtin_;
  Value subject_;
};

}  // namespace lumen::text::jinja
