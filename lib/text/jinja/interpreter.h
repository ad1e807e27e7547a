// Runs a Template.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/limits.h"
#include "lib/text/chat_template.h"
#include "lib/text/jinja/ast.h"
#include "lib/text/jinja/builtins.h"
#include "lib/text/jinja/value.h"

namespace lumen::text::jinja {

// Variables of one block; looked up here, then outwards.
class Scope final : public Object {
 public:
  Scope(Heap& heap, Ref<Scope> parent) : Object(heap, sizeof(Scope)), parent_(std::move(parent)) {}
  const Value* find(Symbol symbol) const;  // nullptr if neither here nor outwards
  void set(Symbol symbol, Value value);

 private:
  void forget() override;
  Ref<Scope> parent_;
  using Variable = std::pair<Symbol, Value>;
  std::vector<Variable, HeapAllocator<Variable>> variables_;
};

// The `loop` variable.
class Loop final : public Object {
 public:
  static constexpr Kind kKind = Kind::kLoop;
  Loop(Heap& heap, const ForStatement& statement, Ref<Scope> outer, Values items, int64_t depth0);

  // Missing if a loop has no such attribute.
  Value attribute(Interpreter& interpreter, std::string_view name) const;
  std::string description() const;

  // Missing before the first call of loop.changed, then a tuple.
  const Value& changed_value() const { return changed_value_; }
  void change_value(Value value) {
    before_change();
    changed_value_ = std::move(value);
  }

  const ForStatement& statement;
  Ref<Scope> outer;
  Values items;
  int64_t depth0;
  int64_t index0 = 0;

  // Of a loop over the list of a horizon: what it left out at the beginning, and the number of
  // items in a trial.
  Horizon* horizon = nullptr;
  int64_t skipped = 0;
  std::optional<int64_t> trial;

 private:
  void forget() override;
  int64_t size() const;
  bool is_last() const;
  Value changed_value_;
};

// One rendering of one template. Not thread-safe; used once.
class Interpreter {
 public:
  Interpreter(const Template& parsed, const Json& variables, const ChatTemplate::Options& options);

  // Throws Error(kMalformed) "NAME:LINE: …".
  std::string render();
  // ChatTemplate::render_beginnings.
  std::string render_beginnings(const std::string& list, RenderedBeginnings& beginnings);

  Heap& heap() { return heap_; }
  CivilTime now() const { return options_.now ? *options_.now : CivilTime::now(); }

  Value call(const Value& callee, Arguments& arguments);
  Value apply(const Builtin& builtin, const Value& subject, Arguments& arguments);

  // `object.name` and `object[key]` as jinja2's sandbox resolves them; undefined if there is none.
  Value get_attribute(const Value& object, std::string_view name);
  Value get_item(const Value& object, const Value& key);

  Value text(std::string_view text) { return Value::text(heap_, std::string(text)); }
  Value undefined(std::string message) { return Value::undefined(heap_, std::move(message)); }

  // Renders a macro's body in `scope`.
  Value run_body(const Block& body, const Ref<Scope>& scope);
  // Evaluates a default of a parameter.
  Value evaluate(const Expression& expression, const Ref<Scope>& scope);
  const SpecialSymbols& special() const { return template_.special; }
  const std::string& symbol_name(Symbol symbol) const { return template_.symbols.name(symbol); }
  // One step of a recursive loop: loop(items).
  Value recurse(const Loop& loop, const Value& items);

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  // Redirects output while it lives.
  class Capture {
   public:
    explicit Capture(Interpreter& interpreter);
    ~Capture();
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    // Ends the redirection and gives what was written.
    Value take();

   private:
    Interpreter& interpreter_;
    TextBuilder buffer_;
    TextBuilder* before_;
  };

  // One more level of the native stack while it lives. The parser bounds the nesting of a template;
  // this bounds macros and loops that call themselves.
  class Deeper {
   public:
    explicit Deeper(Interpreter& interpreter) : depth_(interpreter.depth_) {
      if (++depth_ > kLevels) {
        --depth_;
        refuse("calls are nested too deeply: more than ", kLevels, " evaluations in each other");
      }
    }
    ~Deeper() { --depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    static constexpr int kLevels = 10 * limits::kTemplateDepth;
    int& depth_;
  };

  // A block of which the statements from `next` on are still to be executed.
  struct Rest {
    const Block* block;
    size_t next;
    const Ref<Scope>* scope;
  };

  Flow execute(const Block& block, const Ref<Scope>& scope);
  Flow execute(const Statement& statement, const Ref<Scope>& scope);
  Flow run_if(const IfStatement& statement, const Ref<Scope>& scope);
  void run_for(const ForStatement& statement, const Value& items, const Ref<Scope>& scope,
               int64_t depth0);
  Values filtered(const ForStatement& statement, Values items, const Ref<Scope>& scope);
  Flow run_once(const Ref<Loop>& loop);
  bool is_watched(const ForStatement& statement, const Value& items) const;
  Flow run_watched(const Ref<Loop>& loop, bool finished_one);
  void end_beginnings(const Ref<Loop>& loop, bool finished_one);
  std::optional<RenderedBeginning> end_beginning(const Ref<Loop>& loop, int64_t count,
                                                 bool finished_one, bool once_more);
  std::string rest_of(const Ref<Loop>& loop, bool finished_one, bool once_more);
  void run_set(const SetStatement& statement, const Ref<Scope>& scope);
  Flow run_set_block(const SetBlockStatement& statement, const Ref<Scope>& scope);
  Flow run_filter_block(const FilterBlockStatement& statement, const Ref<Scope>& scope);
  Flow run_with(const WithStatement& statement, const Ref<Scope>& scope);
  void run_call_block(const CallBlockStatement& statement, const Ref<Scope>& scope);
  void run_generation(const BodyStatement& statement, const Ref<Scope>& scope);
  void assign(const Target& target, const Value& value, const Ref<Scope>& scope);
  void check_targets(const Target& target, const Ref<Scope>& scope);
  Ref<Scope> inner(const Ref<Scope>& scope) { return heap_.make<Scope>(scope); }
  void print(const Value& value);

  Value variable(Symbol symbol, const Ref<Scope>& scope);
  Value constant(const ConstantExpression& expression);
  Value dict(const DictExpression& expression, const Ref<Scope>& scope);
  Value unary(const UnaryExpression& expression, const Ref<Scope>& scope);
  Value binary(const BinaryExpression& expression, const Ref<Scope>& scope);
  Value compare(const CompareExpression& expression, const Ref<Scope>& scope);
  bool relate(Operator op, const Value& left, const Value& right);
  Value concatenate(const ConcatenateExpression& expression, const Ref<Scope>& scope);
  Value conditional(const ConditionalExpression& expression, const Ref<Scope>& scope);
  Value item(const ItemExpression& expression, const Ref<Scope>& scope);
  Value slice(const Value& object, const SliceExpression& expression, const Ref<Scope>& scope);
  Value call(const CallExpression& expression, const Ref<Scope>& scope, const Value& caller);
  Value apply(const ApplyExpression& expression, const Ref<Scope>& scope, const Value& subject);
  // The filters of a block, whose innermost operand is the block's `text`.
  Value filter_chain(const Expression& chain, const Ref<Scope>& scope, const Value& text);
  Arguments arguments(const CallArguments& expressions, const Ref<Scope>& scope);
  Values values(const Expressions& expressions, const Ref<Scope>& scope);

  const Template& template_;
  const Json& variables_;
  const ChatTemplate::Options& options_;
  Heap heap_;
  Values context_;  // by symbol; missing until asked for
  TextBuilder main_output_;
  TextBuilder* output_ = &main_output_;
  int line_ = 0;
  int depth_ = 0;

  // For render_beginnings.
  RenderedBeginnings* beginnings_ = nullptr;
  std::string_view list_;   // name of the variable
  Horizon horizon_;         // of the list
  std::vector<Rest> rest_;  // what is still to be executed, innermost last, while captures_ is 0
  int captures_ = 0;        // what is executed is not all that there is to do
};

}  // namespace lumen::text::jinja
