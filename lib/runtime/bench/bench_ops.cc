#include "lib/runtime/bench/bench_ops.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/random.h"
#include "lib/base/strings.h"
#include "lib/graph/cost.h"
#include "lib/graph/graph.h"
#include "lib/graph/plan.h"
#include "lib/ops/ops.h"
#include "lib/ops/random_input.h"
#include "lib/runtime/bench/bench_report.h"
#include "lib/runtime/tool/environment.h"
#include "lib/runtime/tool/machine_limits.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/statistics.h"

namespace lumen::runtime {
namespace {

using graph::Cost;
using graph::cost_of;
using graph::OpCase;
using graph::OpDef;
using graph::Tensor;

// Sizes of cases: beyond the caches of a core, and done in a moment.
constexpr double kCaseBytes = 64e6, kCaseFlops = 4e9;

// The node of `op` that `result` comes from; null if there is none.
const graph::Node* find_node(const OpDef& op, const Tensor& result) {
  const graph::Graph graph({result.node()});
  for (const graph::NodePtr& node : graph.nodes()) {
    if (node->op == &op) return node.get();
  }
  return nullptr;
}

// What `test` costs; none if the shapes do not go with the operation.
std::optional<Cost> cost_of_case(const OpDef& op, const OpCase& test) {
  std::vector<Tensor> inputs;
  for (const graph::TypedShape& type : test.inputs) {
    inputs.push_back(graph::input(type.dtype, type.shape, "x"));
  }
  try {
    const Tensor result = test.build(inputs);
    const graph::Node* node = find_node(op, result);
    if (node == nullptr) return std::nullopt;
    return cost_of(*node);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// What the machine reaches.
struct Peak {
  double flops = 0, bytes = 0;  // per second

  // The share of it that `cost` in `seconds` is: of whichever limits.
  double share(const Cost& cost, double seconds) const {
    return std::max(cost.flops / flops, cost.bytes / bytes) / seconds;
  }
};

struct OpRow {
  std::string operation, label, shapes;
  Cost cost;
  double seconds = 0;           // median
  std::vector<double> samples;  // in seconds, at most kMostSamples
};

std::string shapes_of(const OpCase& test) {
  std::vector<std::string> shapes;
  for (const graph::TypedShape& type : test.inputs) {
    shapes.push_back(str(name(type.dtype), " ", to_string(type.shape)));
  }
  return join(shapes, ", ");
}

// The first input is one of the plan, the others are constants, as weights are.
OpRow measure(const OpDef& op, const OpCase& test, double seconds, ThreadPool& pool) {
  Philox random(42);
  std::vector<Tensor> inputs;
  Array first;
  for (const graph::TypedShape& type : test.inputs) {
    Array values = ops::random_input(type, test, random);
    if (inputs.empty()) {
      first = values;
      inputs.push_back(graph::input(type.dtype, type.shape, "x"));
    } else {
      inputs.push_back(graph::constant(std::move(values)));
    }
  }
  const Tensor result = test.build(inputs);
  const graph::Node* node = find_node(op, result);
  LUMEN_CHECK(node != nullptr);
  OpRow row = {std::string(op.name), test.label, shapes_of(test), cost_of(*node), 0, {}};
  graph::Plan plan = graph::compile({&result, 1}, {.threads = pool.threads()});
  if (plan.has_input(inputs[0])) {
    std::memcpy(plan.input(inputs[0]).mutable_data(), first.data(), first.bytes());
  }
  plan.run(pool);  // warm-up
  constexpr size_t kLeastSamples = 3;
  std::vector<double> samples;
  const auto begin = Clock::now();
  while (samples.size() < kLeastSamples || seconds_since(begin) < seconds) {
    const auto start = Clock::now();
    plan.run(pool);
    samples.push_back(seconds_since(start));
  }
  row.seconds = spread(samples).median;
  row.samples = thinned(std::move(samples), kMostSamples);
  return row;
}

bool is_of_float64(const OpCase& test) {
  return std::ranges::any_of(test.inputs,
                             [](const auto& type) { return type.dtype == DType::kF64; });
}

// The cases of `op` to measure, enlarged; of several with the same shapes the first. Float64 serves
// checks of gradients, so it stands for an operation only where there is nothing else.
std::vector<OpCase> cases_of(const OpDef& op, const OpsBenchOptions& options) {
  std::vector<OpCase> chosen;
  if (!op.kernel || !op.cases || op.overwrites >= 0) return chosen;
  std::pair<bool, double> best = {false, -1};
  for (const OpCase& test : op.cases()) {
    const std::string title = str(op.name, " ", test.label);
    if (options.filter && title.find(*options.filter) == std::string::npos) continue;
    const bool empty = std::any_of(test.inputs.begin(), test.inputs.end(),
                                   [](const auto& type) { return type.shape.elements() == 0; });
    if (empty || test.inputs.empty()) continue;
    OpCase larger = enlarged(op, test, kCaseBytes, kCaseFlops);
    const std::optional<Cost> cost = cost_of_case(op, larger);
    if (!cost) continue;
    const std::pair rank = {!is_of_float64(larger),
                            std::max(cost->bytes / kCaseBytes, cost->flops / kCaseFlops)};
    if (!options.all && rank <= best) continue;
    best = rank;
    if (!options.all) chosen.clear();
    chosen.push_back(std::move(larger));
  }
  return chosen;
}

io::Json to_json(const OpRow& row, const Peak& peak, int threads) {
  return {{"operation", row.operation},
          {"case", row.label},
          {"shapes", row.shapes},
          {"threads", threads},
          {"median_ms", row.seconds * 1000},
          {"gflops", row.cost.flops / row.seconds * 1e-9},
          {"gbytes_per_second", row.cost.bytes / row.seconds * 1e-9},
          {"share_of_peak", peak.share(row.cost, row.seconds)},
          {"samples", row.samples}};
}

std::string rows_table(const std::vector<OpRow>& rows, const Peak& peak, int threads) {
  std::string out = str("Peak of ", threads, " threads: ", fixed(peak.flops * 1e-9, 1),
                        " GFLOP/s in multiply-adds, ", fixed(peak.bytes * 1e-9, 1),
                        " GB/s in reading memory (caches are faster)\n\n"
                        "| operation | inputs | ms | GFLOP/s | GB/s | of peak |\n"
                        "|---|---|--:|--:|--:|--:|\n");
  for (const OpRow& row : rows) {
    out += str("| ", row.operation, " ", row.label, " | ", row.shapes, " | ",
               fixed(row.seconds * 1000, 3), " | ", fixed(row.cost.flops / row.seconds * 1e-9, 1),
               " | ", fixed(row.cost.bytes / row.seconds * 1e-9, 1), " | ",
               fixed(peak.share(row.cost, row.seconds) * 100, 0), " % |\n");
  }
  return out;
}

}  // namespace

OpCase enlarged(const OpDef& op, const OpCase& test, double bytes, double flops) {
  constexpr int64_t kLargest = 1 << 16;
  for (const bool leading : {false, true}) {
    for (int64_t factor = kLargest; factor > 1; factor /= 2) {
      OpCase larger = test;
      double elements = 0;
      for (graph::TypedShape& type : larger.inputs) {
        for (int axis = 0; axis < type.shape.rank(); ++axis) {
          const bool shared = type.shape[axis] == test.inputs[0].shape[0];
          if (type.shape[axis] > 1 && (!leading || (axis == 0 && shared))) {
            type.shape[axis] *= factor;
          }
        }
        double product = 1;  // extents may multiply to more than 64 bits
        for (const int64_t extent : type.shape) product *= static_cast<double>(extent);
        elements += product;
      }
      if (elements > bytes || test.inputs[0].shape.rank() == 0) continue;
      const std::optional<Cost> cost = cost_of_case(op, larger);
      if (cost && cost->bytes <= bytes && cost->flops <= flops) return larger;
    }
  }
  return test;
}

void declare(CommandLine& line, OpsBenchOptions& options) {
  line.begin_verb("ops", "Measure operations against the peak of the machine.");
  line.group("Measure");
  line.add(text_field("filter", "TEXT", "only operations and cases with this in their name",
                      options.filter));
  line.add(switch_field("all", "every case, not only the largest of each operation", options.all));
  line.add_threads(number_field("threads", "threads to compute with (physical cores)",
                                options.threads, 1, kMaxThreads));
  line.add(number_field("seconds", "how long to measure each (0.05)", options.seconds, 0, 60));
  line.group("Output");
  declare(line, options.output);
  line.add_example("lumen-bench ops --filter softmax", "compare one operation with the peak");
}

int bench_ops(const OpsBenchOptions& options) {
  const std::vector<BenchTarget> targets = targets_of(options.output);
  ThreadPool pool(static_cast<int>(options.threads.value_or(default_thread_count())));
  const graph::PoolScope scope(pool);
  const graph::NoGradScope no_grad;
  std::vector<std::pair<const OpDef*, OpCase>> cases;
  for (const OpDef* op : ops::op_list()) {
    for (OpCase& test : cases_of(*op, options)) cases.emplace_back(op, std::move(test));
  }
  if (cases.empty()) {
    fail(ErrorKind::kUsage, "--filter ", quoted(options.filter.value_or("")),
         ": no operation with a kernel has this in its name");
  }
  const ReadBandwidth bandwidth = measure_read_bandwidth(pool);
  write_stderr(describe_shortage(bandwidth));
  const Peak peak = {measure_flops(pool), bandwidth.bytes_per_second};
  std::vector<OpRow> rows;
  for (const auto& [op, test] : cases) {
    rows.push_back(measure(*op, test, options.seconds.value_or(0.05), pool));
  }
  io::Json results = io::Json::array();
  for (const OpRow& row : rows) results.push_back(to_json(row, peak, pool.threads()));
  const io::Json report = {
      {"schema", 1},
      {"benchmark", "ops"},
      {"threads", pool.threads()},
      {"peak", {{"gflops", peak.flops * 1e-9}, {"gbytes_per_second", peak.bytes * 1e-9}}},
      {"results", std::move(results)},
      {"environment", environment_description()}};
  print_targets(targets, [&](const std::string& form) {
    return report_text(report, form, [&] { return rows_table(rows, peak, pool.threads()); });
  });
  return 0;
}

}  // namespace lumen::runtime
