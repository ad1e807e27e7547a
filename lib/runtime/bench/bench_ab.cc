#include "lib/runtime/bench/bench_ab.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <set>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/runtime/tool/child_process.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/statistics.h"

namespace lumen::runtime {
namespace {

// The last line that is not empty, or "".
std::string_view last_words(std::string_view text) {
  const size_t end = text.find_last_not_of(" \r\n");
  if (end == text.npos) return "";
  text = text.substr(0, end + 1);
  return text.substr(text.find_last_of('\n') + 1);
}

const BenchKind& measured_kind(const std::string& verb) {
  const BenchKind* kind = find_bench_kind(verb);
  if (kind == nullptr) {
    fail(ErrorKind::kUsage, "after --: ", quoted(verb), " is not llm, train or ops");
  }
  return *kind;
}

// `command`, asking for a report. Arguments behind its own "--" are no options.
std::vector<std::string> report_arguments(std::vector<std::string> command, const BenchKind& kind) {
  command.insert(std::find(command.begin(), command.end(), "--"), kind.json_arguments.begin(),
                 kind.json_arguments.end());
  return command;
}

// One of the two programs and what it measured so far.
class Contender {
 public:
  Contender(std::string program, const BenchKind& kind)
      : program_(std::move(program)), report_{&kind, {}, {}} {}

  // Measures once more; false if a signal stopped it. What a program says on standard error is
  // passed on once: `said` has what was.
  bool measure(const std::vector<std::string>& arguments, SignalWatch& signals,
               std::set<std::string>& said) {
    const ChildOutcome outcome = run_child(program_, arguments, limits::kJsonBytes, signals);
    if (outcome.stopped) return false;
    if (outcome.exit_code != 0) fail_run(arguments, outcome);
    if (said.insert(outcome.err).second) write_stderr(outcome.err);
    add(outcome.out);
    return true;
  }

  const BenchReport& report() const { return report_; }

 private:
  [[noreturn]] void fail_run(const std::vector<std::string>& arguments,
                             const ChildOutcome& outcome) const {
    const std::string_view line = last_words(outcome.err);
    fail(ErrorKind::kProgramFailed, quoted(str(program_, " ", join(arguments, " ")), 200),
         " ended with exit code ", outcome.exit_code, ": ",
         line.empty() ? "it said nothing on standard error" : quoted(line, 400));
  }

  // What one process measures depends on where its memory lies and on that minute: its samples are
  // not independent, and count as one, their median.
  void add(const std::string& json) {
    const std::string place = str("the report of ", quoted(program_));
    BenchReport report = parse_bench_report(io::parse_json(json, place), place);
    if (report.kind != report_.kind) {
      fail(ErrorKind::kMalformed, place, ": benchmark: found '", report.kind->verb, "', expected '",
           report_.kind->verb, "'");
    }
    report_.conditions = std::move(report.conditions);
    for (BenchRow& row : report.rows) row.samples = {spread(row.samples).median};
    add_rows(report_, std::move(report.rows));
  }

  std::string program_;
  BenchReport report_;
};

void show_round(int64_t round, int64_t rounds) {
  if (is_terminal(STDERR_FILENO)) write_stderr(str("round ", round, " of ", rounds, "\n"));
}

// Measures in the order a b, b a, …. Returns the signal that stopped it, or 0.
int run_rounds(Contender& a, Contender& b, int64_t rounds,
               const std::vector<std::string>& arguments) {
  std::set<std::string> said;
  SignalWatch signals;
  for (int64_t round = 0; round < rounds; ++round) {
    show_round(round + 1, rounds);
    Contender &first = round % 2 == 0 ? a : b, &second = round % 2 == 0 ? b : a;
    if (!first.measure(arguments, signals, said) || !second.measure(arguments, signals, said)) {
      return signals.termination() != 0 ? signals.termination() : SIGINT;
    }
  }
  return 0;
}

bool is_same_program(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

// The largest deviation of a median, in percent of the old.
double largest_deviation(const Comparison& comparison) {
  double largest = 0;
  for (const RowComparison& row : comparison.rows) {
    largest = std::max(largest, 100 * std::abs(row.ratio - 1));
  }
  return largest;
}

}  // namespace

void declare(CommandLine& line, AbOptions& options) {
  line.begin_verb("ab", "Run two lumen-bench in turn; fail if the second is slower.");
  line.group("Measure");
  line.add(path_field("a", "PATH", "the old lumen-bench", options.a));
  line.add(
      path_field("b", "PATH", "the new one; the same: how much this machine varies", options.b));
  line.add(number_field("rounds", "runs of each, in the order a b, b a; four or more can tell (5)",
                        options.rounds, 1, 1000));
  line.add_rest(
      list_field("verb", "", "what to run: llm, train or ops, and its arguments", options.command));
  declare_gate(line, options.gate);
  line.add_example("lumen-bench ab --a old/lumen-bench --b new/lumen-bench -- llm -p 512 -n 64",
                   "exit with 3 if the new one is slower with the built-in model");
}

int bench_ab(const AbOptions& options) {
  if (!options.a || !options.b) {
    fail(ErrorKind::kUsage, "name two programs: lumen-bench ab --a PATH --b PATH -- VERB");
  }
  const BenchKind& kind = measured_kind(options.command.front());
  const std::vector<BenchTarget> targets = targets_of(options.gate.output);
  Contender a(*options.a, kind), b(*options.b, kind);
  const int signal =
      run_rounds(a, b, options.rounds.value_or(5), report_arguments(options.command, kind));
  if (signal != 0) return 128 + signal;
  Comparison comparison = compare_reports(a.report(), b.report(), options.gate);
  if (is_same_program(*options.a, *options.b)) {
    comparison.noise_floor = largest_deviation(comparison);
  }
  print_targets(targets,
                [&](const std::string& form) { return to_text(comparison, options.gate, form); });
  return gate_exit_code(comparison, options.gate);
}

}  // namespace lumen::runtime
