#include "lib/graph/plan.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "lib/base/error.h"
#include "lib/graph/layout.h"
#include "lib/graph/memory_plan.h"
#include "lib/graph/mixed_precision.h"
#include "lib/graph/plan_observer.h"
#include "lib/graph/program.h"
#include "lib/kernels/matmul.h"

namespace lumen::graph {

struct Plan::Impl {
  struct Step {
    NodePtr node;
    KernelCall call;
    std::vector<RowOperand> epilogue_operands;
  };
  std::vector<Step> steps;
  std::vector<NodePtr> nodes;  // keeps constants and states alive
  Array arena;
  std::unordered_map<const Node*, Array> inputs;
  std::vector<Array> outputs;
  int threads = 1;
  bool needs_bf16_unit = false;

  void run_step(Step& step, ThreadPool& pool);
  void run_observed(Step& step, ThreadPool& pool, PlanObserver& observer);
};

namespace {

// Values known from an earlier evaluation are constants now.
Graph use_known_values(const Graph& graph) {
  return rewrite(graph, [](const NodePtr& node, const NodePtr& original) {
    if (node->inputs.empty() || original->value.empty()) return node;
    return constant(original->value, original->name).node();
  });
}

// Element-wise nodes that no pass fused become programs of one instruction.
Graph program_all(const Graph& graph) {
  bool needed = false;
  for (const NodePtr& node : graph.nodes()) {
    needed |= is_fusable(*node);
  }
  if (!needed) return graph;
  return rewrite(graph, [](const NodePtr& node, const NodePtr&) {
    if (!is_fusable(*node)) return node;
    return make_fused(finished(program_of(*node)), node->inputs, node->dtype);
  });
}

// Whether its kernel takes or gives bfloat16 as only the unit of the thread that compiles can.
bool needs_bf16_unit(const Node& node) {
  if (!in_bf16(node)) return false;
  bool needs = stored_type(node) == DType::kBF16;
  for (size_t i = 0; i < node.inputs.size() && node.op->bf16_input; ++i) {
    needs |= node.inputs[i]->dtype == DType::kBF16 &&
             node.op->bf16_input(node, i) == Bf16Input::kRounded;
  }
  return needs;
}

bool is_step(const Node& node) {
  return node.op->kind != OpKind::kLeaf && node.op->kind != OpKind::kView;
}

size_t bytes_of(const Node& node) {
  const int64_t last = node.shape.rank() > 0 ? node.shape[-1] : 1;
  if (node.shape.elements() == 0) return 0;
  return static_cast<size_t>(node.shape.elements() / last * row_bytes(node.dtype, last));
}

// Builds a plan from a graph whose layouts are materialised.
class Planner {
 public:
  Planner(const Graph& graph, int threads)
      : graph_(graph), threads_(threads), layouts_(graph.nodes().size()) {}

  void build(Plan::Impl& plan);

 private:
  void lay_out();
  size_t place();
  void bind(Plan::Impl& plan);
  Operand operand(const Node& node) const;
  std::vector<RowOperand> epilogue_operands(const KernelCall& call) const;

  const Graph& graph_;
  int threads_;
  NodeMap<StridedLayout> layouts_;
  NodeMap<size_t> offsets_;     // of roots in the arena
  NodeMap<std::byte*> memory_;  // of roots
  size_t workspace_offset_ = 0;
};

void Planner::lay_out() {
  for (const NodePtr& node : graph_.nodes()) {
    const StridedLayout* first =
        node->inputs.empty() ? nullptr : &layouts_.at(node->inputs[0].get());
    StridedLayout layout;
    LUMEN_CHECK(layout_of(*node, first, layout));
    layouts_[node.get()] = layout;
  }
}

// Offsets of all results in the arena; returns its size with the common workspace behind them.
size_t Planner::place() {
  NodeMap<size_t> index;  // root → interval
  std::vector<Interval> intervals;
  std::vector<const Node*> roots;
  int step = 0;
  size_t workspace = 0;
  for (const NodePtr& node : graph_.nodes()) {
    if (!is_step(*node)) continue;
    for (const NodePtr& input : node->inputs) {
      const size_t* found = index.find(layouts_.at(input.get()).root);
      if (found) intervals[*found].last = step;
    }
    if (node->op->overwrites < 0) {
      index[node.get()] = intervals.size();
      intervals.push_back({bytes_of(*node), step, step, 0});
      roots.push_back(node.get());
    }
    if (node->op->workspace) workspace = std::max(workspace, node->op->workspace(*node, threads_));
    ++step;
  }
  for (const NodePtr& output : graph_.outputs()) {
    const Node* root = layouts_.at(output.get()).root;
    if (output->op->overwrites < 0) intervals[index.at(root)].last = step;
  }
  workspace_offset_ = plan_memory(intervals);
  for (size_t i = 0; i < roots.size(); ++i) offsets_[roots[i]] = intervals[i].offset;
  return workspace_offset_ + workspace;
}

Operand Planner::operand(const Node& node) const {
  const StridedLayout& layout = layouts_.at(&node);
  Operand operand;
  operand.dtype = node.dtype;
  operand.layout = node.value.layout();
  operand.shape = node.shape;
  operand.strides = layout.strides;
  operand.data = memory_.at(layout.root) + row_bytes(node.dtype, layout.offset);
  return operand;
}

std::vector<RowOperand> Planner::epilogue_operands(const KernelCall& call) const {
  std::vector<RowOperand> operands;
  const size_t count = static_cast<size_t>(call.node->epilogue->inputs) - 1;
  for (size_t i = call.inputs.size() - count; i < call.inputs.size(); ++i) {
    const Operand& x = call.inputs[i];
    RowOperand row{x.data, x.dtype, 0, x.shape[-1] == 1 ? 0 : x.strides[x.shape.rank() - 1]};
    LUMEN_CHECK(common_row_stride(x.shape, x.strides, row.row_stride));
    operands.push_back(row);
  }
  return operands;
}

void Planner::bind(Plan::Impl& plan) {
  std::byte* arena = plan.arena.bytes() > 0 ? plan.arena.mutable_data() : nullptr;
  for (const NodePtr& node : graph_.nodes()) {
    if (is_constant(*node)) {
      memory_[node.get()] = const_cast<std::byte*>(node->value.storage());  // only read
    } else if (is_state(*node)) {
      // Written only by operations that overwrite it, for which it must be writable.
      memory_[node.get()] = const_cast<std::byte*>(node->value.data());
    } else if (is_input(*node)) {
      Array& array = plan.inputs[node.get()] = Array::zeros(node->dtype, node->shape);
      memory_[node.get()] = array.mutable_data();
    } else if (is_step(*node)) {
      if (node->op->overwrites < 0) {
        memory_[node.get()] = arena + offsets_.at(node.get());
      } else {
        Array(layouts_.at(node.get()).root->value).mutable_data();  // checks that it is writable
      }
      Plan::Impl::Step step;
      step.node = node;
      step.call.node = node.get();
      for (const NodePtr& input : node->inputs) step.call.inputs.push_back(operand(*input));
      step.call.output = operand(*node);
      step.call.workspace = arena + workspace_offset_;
      if (node->op->takes_epilogue && node->epilogue) {
        step.epilogue_operands = epilogue_operands(step.call);
      }
      plan.needs_bf16_unit |= needs_bf16_unit(*node);
      plan.steps.push_back(std::move(step));
    }
  }
}

void Planner::build(Plan::Impl& plan) {
  lay_out();
  plan.arena = Array::uninitialized(DType::kU8, {static_cast<int64_t>(place())});
  bind(plan);
  plan.nodes = graph_.nodes();
  plan.threads = threads_;
  auto buffer = std::make_shared<Buffer>();
  buffer->data = plan.arena.bytes() > 0 ? plan.arena.mutable_data() : nullptr;
  buffer->bytes = plan.arena.bytes();
  buffer->owner = std::make_shared<Array>(plan.arena);
  for (const NodePtr& output : graph_.outputs()) {
    const StridedLayout& layout = layouts_.at(output.get());
    if (output->op->overwrites >= 0) {
      plan.outputs.push_back(layout.root->value);
      continue;
    }
    const auto within = static_cast<size_t>(row_bytes(output->dtype, layout.offset));
    plan.outputs.push_back(
        Array::view(buffer, offsets_.at(layout.root) + within, output->dtype, output->shape));
  }
}

}  // namespace

void Plan::Impl::run_step(Step& step, ThreadPool& pool) {
  step.call.pool = &pool;
  if (step.epilogue_operands.empty() && !(step.node->op->takes_epilogue && step.node->epilogue)) {
    step.node->op->kernel(step.call);
    return;
  }
  const Program& program = *step.node->epilogue;
  auto apply_program = [&](int64_t row, int64_t begin, int64_t end, float* piece) {
    run_epilogue(program, step.epilogue_operands, row, begin, end, piece);
  };
  const kernels::Epilogue epilogue = apply_program;
  step.call.epilogue = &epilogue;
  step.node->op->kernel(step.call);
  step.call.epilogue = nullptr;
}

void Plan::Impl::run_observed(Step& step, ThreadPool& pool, PlanObserver& observer) {
  const auto start = Clock::now();
  run_step(step, pool);
  observer.on_step(step.node, start, Clock::now());
}

Plan::Plan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

bool Plan::run(ThreadPool& pool, const std::atomic<bool>* stop) {
  LUMEN_CHECK(pool.threads() <= impl_->threads);
  if (impl_->needs_bf16_unit && kernels::ExactProductsScope::active()) {
    fail(ErrorKind::kUnsupported,
         "a plan that was compiled to store what products round in bfloat16 cannot run under an "
         "ExactProductsScope; compile it under one");
  }
  PlanObserver* const observer = current_observer();
  for (Impl::Step& step : impl_->steps) {
    if (stop && *stop) return false;
    if (observer != nullptr) {
      impl_->run_observed(step, pool, *observer);
    } else {
      impl_->run_step(step, pool);
    }
  }
  return true;
}

bool Plan::has_input(const Tensor& tensor) const {
  return impl_->inputs.count(tensor.node().get()) > 0;
}

Array& Plan::input(const Tensor& tensor) {
  auto found = impl_->inputs.find(tensor.node().get());
  if (found == impl_->inputs.end()) {
    fail(ErrorKind::kMalformed, "Plan::input: the outputs do not depend on ",
         tensor.defined() ? quoted(tensor.node()->name) : "an undefined tensor");
  }
  return found->second;
}

const Node* Plan::any_input() const {
  return impl_->inputs.empty() ? nullptr : impl_->inputs.begin()->first;
}

const Array& Plan::output(size_t i) const {
  return impl_->outputs.at(i);
}

size_t Plan::arena_bytes() const {
  return impl_->arena.bytes();
}

size_t Plan::steps() const {
  return impl_->steps.size();
}

std::string Plan::text() const {
  std::string out;
  for (const Impl::Step& step : impl_->steps) {
    out += str(step.node->op->name, " ", to_string(step.node->shape));
    if (step.node->epilogue) out += str(" {", to_string(*step.node->epilogue), "}");
    out += "\n";
  }
  return out;
}

Plan compile(std::span<const NodePtr> outputs, const CompileOptions& options) {
  const EagerScope lazy(false);  // passes build nodes that must not be computed one by one
  Graph graph = use_known_values(Graph({outputs.begin(), outputs.end()}));
  graph = run_passes(std::move(graph), options.pipeline, options.verified);
  graph = program_all(graph);
  if (options.pipeline.empty() || options.pipeline.back().name != "schedule") {
    graph = run_passes(std::move(graph), {passes::materialize_layouts()}, options.verified);
  }
  auto impl = std::make_unique<Plan::Impl>();
  Planner(graph, options.threads > 0 ? options.threads : current_pool().threads()).build(*impl);
  return Plan(std::move(impl));
}

Plan compile(std::span<const Tensor> outputs, const CompileOptions& options) {
  check_defined(outputs, "compile");
  std::vector<NodePtr> nodes;
  for (const Tensor& tensor : outputs) nodes.push_back(tensor.node());
  return compile(nodes, options);
}

}  // namespace lumen::graph
