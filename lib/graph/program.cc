#include "lib/graph/program.h"

#include <algorithm>
#include <bit>

#include "lib/base/check.h"
#include "lib/base/strings.h"
#include "lib/kernels/convert.h"

namespace lumen::graph {
namespace {

// The block function of kToBf16 and kToF16.
template <DType kType>
void round_to(const float* const* in, float* out, int64_t n, const float*) {
  uint16_t narrow[Program::kChunk];
  for (int64_t i = 0; i < n; i += Program::kChunk) {
    const int64_t count = std::min(Program::kChunk, n - i);
    kernels::from_float(kType, in[0] + i, narrow, count);
    kernels::to_float(kType, narrow, out + i, count);
  }
}

TypedShape infer_fused(const Node& node) {
  return {node.dtype, node.shape};
}

}  // namespace

std::shared_ptr<const Program> finished(Program program) {
  const int count = static_cast<int>(program.code.size());
  const auto is_simple = [&](int i) {
    return i < count && simple_form(*program.code[i].op) != kernels::TypedOp::kNone;
  };
  // Where each result is read last.
  std::vector<int> last_read(program.inputs + count, -1);
  for (int i = 0; i < count; ++i) {
    for (int argument : program.code[i].arguments) last_read[argument] = i;
  }
  program.parts.clear();
  for (int begin = 0, end; begin < count; begin = end) {
    end = begin + 1;
    while (is_simple(begin) && is_simple(end)) ++end;
    const bool has_block = program.dtype == DType::kF32 || program.code[begin].op->block_f64;
    program.parts.push_back({begin, end, end - begin > 1 || !has_block});
  }
  program.places.assign(count, 0);
  program.steps.assign(count, {});
  std::vector<int> free;
  int used = 0;
  for (const Program::Part& part : program.parts) {
    for (int i = part.begin; i < part.end; ++i) {
      const auto& instruction = program.code[i];
      const auto& arguments = instruction.arguments;
      const auto is_before = [&](int argument) {
        return i > part.begin && argument == program.inputs + i - 1;
      };
      kernels::ChainStep& step = program.steps[i];
      step.op = simple_form(*instruction.op);
      for (size_t a = 0; a < std::size(step.arguments); ++a) {
        const int argument = arguments[a < arguments.size() ? a : 0];
        step.arguments[a] =
            static_cast<int8_t>(is_before(argument) ? kernels::ChainStep::kBefore : argument);
      }
      for (size_t a = 0; a < arguments.size(); ++a) {
        const int result = arguments[a] - program.inputs;
        const bool is_first = std::find(arguments.begin(), arguments.begin() + a, arguments[a]) ==
                              arguments.begin() + a;
        const bool has_place = result >= 0 && program.places[result] >= 0;
        if (has_place && is_first && last_read[arguments[a]] == i) {
          free.push_back(program.places[result]);
        }
      }
      const bool is_stored = i + 1 == part.end || last_read[program.inputs + i] != i + 1;
      if (is_stored) step.result = static_cast<int8_t>(i);
      if (is_stored && i + 1 < count) {
        if (free.empty()) free.push_back(used++);
        program.places[i] = free.back();
        free.pop_back();
      } else {
        program.places[i] = -1;
      }
    }
  }
  return std::make_shared<const Program>(std::move(program));
}

bool operator==(const Program& a, const Program& b) {
  return a.dtype == b.dtype && a.inputs == b.inputs && a.code == b.code;
}

std::string to_string(const Program& program) {
  std::string out;
  for (const auto& instruction : program.code) {
    out += str(out.empty() ? "" : " ", instruction.op->name, "(");
    for (size_t i = 0; i < instruction.arguments.size(); ++i) {
      out += str(i ? ", r" : "r", instruction.arguments[i]);
    }
    out += ")";
  }
  return out;
}

kernels::TypedOp simple_form(const OpDef& op) {
  return kernels::is_of_integers(op.typed) ? kernels::TypedOp::kNone : op.typed;
}

bool fits_bf16(DType dtype) {
  return dtype == DType::kBF16 || (info(dtype).block_bytes == 1 && !is_quantized(dtype));
}

bool fits_bf16(float x) {
  return (std::bit_cast<uint32_t>(x) & 0xFFFF) == 0;
}

bool chooses(const Program& program) {
  using enum kernels::TypedOp;
  constexpr kernels::TypedOp kChoices[] = {kNegate,  kMagnitude, kSign,  kClamp, kMaximum,
                                           kMinimum, kLess,      kEqual, kWhere, kRelu,
                                           kToBf16,  kFloor,     kCeil,  kRound, kTrunc};
  return std::ranges::all_of(program.code, [&](const auto& instruction) {
    return std::ranges::find(kChoices, simple_form(*instruction.op)) != std::end(kChoices);
  });
}

const OpDef kToBf16 = {.name = "to_bf16",
                       .kind = OpKind::kElementwise,
                       .block = round_to<DType::kBF16>,
                       .typed = kernels::TypedOp::kToBf16};
const OpDef kToF16 = {
    .name = "to_f16", .kind = OpKind::kElementwise, .block = round_to<DType::kF16>};

const OpDef kFused = {.name = "fused",
                      .kind = OpKind::kElementwise,
                      .infer = infer_fused,
                      .kernel = run_elementwise,
                      .layout = InputLayout::kAny,
                      .gives_bf16 = [](const Node&) { return true; }};

NodePtr make_fused(std::shared_ptr<const Program> program, std::vector<NodePtr> inputs,
                   DType dtype) {
  LUMEN_CHECK(program->dtype == DType::kF32 || program->dtype == dtype);
  auto node = std::make_shared<Node>();
  node->op = &kFused;
  node->shape = inputs[0]->shape;
  node->dtype = dtype;
  node->inputs = std::move(inputs);
  node->epilogue = std::move(program);
  return node;
}

bool is_fusable(const Node& node) {
  if (node.op->kind != OpKind::kElementwise || node.op == &kFused) return false;
  if (node.dtype != DType::kF64) return node.dtype == DType::kF32;
  const bool in_vectors =
      node.op->block_f64 != nullptr || simple_form(*node.op) != kernels::TypedOp::kNone;
  return in_vectors && std::ranges::any_of(node.inputs, [](const NodePtr& input) {
           return is_float(input->dtype) && !is_quantized(input->dtype);
         });
}

Program program_of(const Node& node) {
  if (node.op == &kFused) return *node.epilogue;
  Program program;
  program.dtype = node.dtype;
  program.inputs = static_cast<int>(node.inputs.size());
  std::vector<int> arguments;
  for (int i = 0; i < program.inputs; ++i) arguments.push_back(i);
  program.code.push_back({node.op, std::move(arguments)});
  return program;
}

void join_operands(Program& program, std::vector<NodePtr>& inputs) {
  std::vector<NodePtr> joined;
  std::vector<int> map;
  for (const NodePtr& input : inputs) {
    auto found = std::find(joined.begin(), joined.end(), input);
    if (found == joined.end()) found = joined.insert(joined.end(), input);
    map.push_back(static_cast<int>(found - joined.begin()));
  }
  const int gone = program.inputs - static_cast<int>(joined.size());
  for (auto& instruction : program.code) {
    for (int& argument : instruction.arguments) {
      argument = argument < program.inputs ? map[static_cast<size_t>(argument)] : argument - gone;
    }
  }
  program.inputs -= gone;
  inputs = std::move(joined);
}

bool inline_program(const Program& inner, std::span<const NodePtr> inner_inputs, size_t slot,
                    Program& outer, std::vector<NodePtr>& outer_inputs) {
  std::vector<NodePtr> inputs;
  auto operand = [&](const NodePtr& node) {
    auto found = std::find(inputs.begin(), inputs.end(), node);
    if (found == inputs.end()) found = inputs.insert(inputs.end(), node);
    return static_cast<int>(found - inputs.begin());
  };
  std::vector<int> outer_map(outer_inputs.size()), inner_map(inner_inputs.size());
  for (size_t i = 0; i < outer_inputs.size(); ++i) {
    if (i != slot) outer_map[i] = operand(outer_inputs[i]);
  }
  for (size_t i = 0; i < inner_inputs.size(); ++i) inner_map[i] = operand(inner_inputs[i]);
  if (inputs.size() > Program::kMaxInputs) return false;

  Program joined;
  joined.dtype = outer.dtype;
  joined.inputs = static_cast<int>(inputs.size());
  // Adds instructions whose operands are `registers` of the joined program, each once; returns the
  // register of the last.
  auto append = [&](const Program& part, std::vector<int> registers, bool ends) {
    for (size_t i = 0; i < part.code.size(); ++i) {
      Program::Instruction instruction = part.code[i];
      for (int& argument : instruction.arguments) argument = registers[argument];
      const bool is_result = ends && i + 1 == part.code.size();
      auto known = is_result ? joined.code.end()
                             : std::find(joined.code.begin(), joined.code.end(), instruction);
      registers.push_back(joined.inputs + static_cast<int>(known - joined.code.begin()));
      if (known == joined.code.end()) joined.code.push_back(std::move(instruction));
    }
    return registers.back();
  };
  outer_map[slot] = append(inner, inner_map, false);
  append(outer, outer_map, true);
  if (joined.code.size() > Program::kMaxInstructions) return false;
  outer = std::move(joined);
  outer_inputs = std::move(inputs);
  return true;
}

}  // namespace lumen::graph
