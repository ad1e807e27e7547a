// Loops over the messages of a conversation, of which beginnings are rendered along with the whole:
// the messages a beginning lacks decide nothing before the loop comes to them, so that it is the
// same up to there, but ends the loop. What then follows is executed on trial.
#include "lib/base/limits.h"
#include "lib/text/jinja/interpreter.h"

namespace lumen::text::jinja {
namespace {

// What follows the messages is short; it is kept for every beginning.
constexpr size_t kMaxRest = 4096;

// Whether executing `block` may write something.
bool writes(const Block& block) {
  for (const auto& statement : block) {
    switch (statement->kind) {
      case StatementKind::kFor: {
        const auto& loop = static_cast<const ForStatement&>(*statement);
        if (writes(loop.body) || writes(loop.otherwise)) return true;
        break;
      }
      case StatementKind::kIf: {
        const auto& choice = static_cast<const IfStatement&>(*statement);
        for (const auto& [condition, body] : choice.branches) {
          if (writes(body)) return true;
        }
        if (writes(choice.otherwise)) return true;
        break;
      }
      case StatementKind::kWith:
        if (writes(static_cast<const WithStatement&>(*statement).body)) return true;
        break;
      case StatementKind::kScope:
        if (writes(static_cast<const BodyStatement&>(*statement).body)) return true;
        break;
      case StatementKind::kSet:
      case StatementKind::kSetBlock:
      case StatementKind::kMacro:
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        break;
      case StatementKind::kData:
      case StatementKind::kOutput:
      case StatementKind::kCallBlock:
      case StatementKind::kFilterBlock:
      case StatementKind::kGeneration:
        return true;
    }
  }
  return false;
}

}  // namespace

// Loops that write are watched where all that follows them is known; others, which only look for
// something, wherever they are.
bool Interpreter::is_watched(const ForStatement& statement, const Value& items) const {
  if (beginnings_ == nullptr || statement.condition || horizon_.trial) return false;
  if (!items.is_sequence() || items.sequence().horizon() == nullptr) return false;
  if (writes(statement.body)) return captures_ == 0;
  return statement.otherwise.empty() && !heap_.in_stage();
}

Interpreter::Flow Interpreter::run_watched(const Ref<Loop>& loop, bool finished_one) {
  if (writes(loop->statement.body)) {
    end_beginnings(loop, finished_one);
    return run_once(loop);
  }
  // A list that ends before an iteration that changes nothing makes no difference.
  const Heap::Stage stage(heap_);
  const Flow flow = run_once(loop);
  if (stage.changed()) horizon_.see(loop->skipped + loop->index0 + 1);
  return flow;
}

// Ends the beginnings that have no item for the iteration to come, and the one for which it is the
// last if the template makes a difference there.
void Interpreter::end_beginnings(const Ref<Loop>& loop, bool finished_one) {
  const int64_t here = loop->skipped + loop->index0;
  const auto end = [&](int64_t count, bool once_more) {
    auto& beginning = (*beginnings_)[static_cast<size_t>(count)];
    if (!beginning) beginning = end_beginning(loop, count, finished_one, once_more);
  };
  for (int64_t count = horizon_.needed; count <= here; ++count) end(count, false);
  horizon_.see(here + 1);
  if (horizon_.looks_ahead && horizon_.needed == here + 1 && here + 1 < horizon_.size) {
    end(here + 1, true);
  }
}

// What is rendered if the list has only `count` items, `once_more` after another iteration.
std::optional<RenderedBeginning> Interpreter::end_beginning(const Ref<Loop>& loop, int64_t count,
                                                            bool finished_one, bool once_more) {
  const int line = line_, captures = captures_;
  const int64_t index0 = loop->index0;
  std::optional<RenderedBeginning> result;
  horizon_.trial = count;
  try {
    const Heap::Trial trial(heap_);
    std::string rest = rest_of(loop, finished_one, once_more);
    if (rest.size() <= kMaxRest) result = {main_output_.size(), std::move(rest)};
  } catch (const Failure&) {  // perhaps of a limit, to which this rendering is nearer
  } catch (const TrialFailure&) {
  }
  horizon_.trial.reset();
  loop->trial.reset();
  loop->index0 = index0;
  line_ = line;
  captures_ = captures;
  return result;
}

// What is written from here to the end of the template if the loop has no more items, or one.
std::string Interpreter::rest_of(const Ref<Loop>& loop, bool finished_one, bool once_more) {
  const size_t written = main_output_.size();
  Capture capture(*this);
  loop->trial = loop->index0 + (once_more ? 1 : 0);
  if (once_more) {
    const Flow flow = run_once(loop);
    finished_one |= flow == Flow::kNormal;
    if (flow != Flow::kBreak) ++loop->index0;
  }
  if (!finished_one) execute(loop->statement.otherwise, inner(loop->outer));
  for (size_t i = rest_.size(); i-- > 0;) {
    const Rest& rest = rest_[i];
    for (size_t j = rest.next; j < rest.block->size(); ++j) execute(*(*rest.block)[j], *rest.scope);
  }
  const Value text = capture.take();
  if (written + text.view().size() > limits::kTemplateOutputBytes) throw TrialFailure();
  return std::string(text.view());
}

}  // namespace lumen::text::jinja
