// A program of element-wise operations, run chunk by chunk over pieces that stay in L1. What makes
// and joins programs is program.cc, what runs them program_run.cc.
//
// Fusion needs no code generator: a fused step calls one vector block function per operation on
// chunks of a few hundred elements, so intermediate results never leave the cache.
#pragma once

#include <memory>
#include <vector>

#include "lib/graph/node.h"
#include "lib/kernels/chain.h"

namespace lumen::graph {

// Registers 0 … inputs−1 are the operands; instruction i writes register inputs + i; the last one
// is the result. All are float32, or all float64.
struct Program {
  static constexpr int kMaxInputs = 8;
  static constexpr int kMaxInstructions = 16;
  static constexpr int64_t kChunk = 512;  // floats per register: 24 registers fill an L1 of 48 KiB

  struct Instruction {
    const OpDef* op;
    std::vector<int> arguments;  // registers

    friend bool operator==(const Instruction& a, const Instruction& b) {
      return a.op == b.op && a.arguments == b.arguments;
    }
  };
  int inputs = 0;
  std::vector<Instruction> code;
  DType dtype = DType::kF32;  // or kF64

  // How it runs, made by `finished`: the code in parts, each a block function or a chain
  // (kernels/chain.h), and a place for the result of each instruction that is stored: that of
  // one which is not read again if there is one, so that few lines of L1 are in use.
  struct Part {
    int begin, end;
    bool is_chain;
  };
  std::vector<Part> parts{};
  std::vector<kernels::ChainStep> steps{};  // of each instruction that is part of a chain
  std::vector<int> places{};                // of each; the last has none

  friend bool operator==(const Program& a, const Program& b);
};

// `program`, ready to run.
std::shared_ptr<const Program> finished(Program program);

// "silu(r0) mul(r2, r1)".
std::string to_string(const Program& program);

// Whether a node is an element-wise operation that becomes a program: one with a float32 result,
// or, if it is computed in vectors of float64, with such a result.
bool is_fusable(const Node& node);

// What it is in a chain (kernels/chain.h), kNone if it takes a block function.
kernels::TypedOp simple_form(const OpDef& op);

// Whether numbers of a type are such as bfloat16 holds, and whether one is.
bool fits_bf16(DType dtype);
bool fits_bf16(float x);

// Whether a program gives one of its operands, or that with another sign, or a truth value: where
// they are numbers that bfloat16 holds so is the result, which rounding leaves alone.
bool chooses(const Program& program);

// Instructions that round to a narrow float, as a result of that type is, and widen again: only in
// programs.
extern const OpDef kToBf16, kToF16;

// The operation a fused element-wise group becomes: its inputs are the program's operands, its
// type that of the program or, of float32, any.
extern const OpDef kFused;
NodePtr make_fused(std::shared_ptr<const Program> program, std::vector<NodePtr> inputs,
                   DType dtype);
// The program of an element-wise node: the one of a fused node, or its own block as one step.
Program program_of(const Node& node);

// Operands that are the same node become one.
void join_operands(Program& program, std::vector<NodePtr>& inputs);

// Replaces operand `slot` of `outer` by the result of `inner`. `outer_inputs` and `inner_inputs`
// name what the operands are; equal ones are joined, and so are equal instructions. Returns false
// if limits are exceeded.
bool inline_program(const Program& inner, std::span<const NodePtr> inner_inputs, size_t slot,
                    Program& outer, std::vector<NodePtr>& outer_inputs);

// Runs a node with a program (a kFused one, or any single element-wise operation) over its whole
// result, in parallel.
void run_elementwise(const KernelCall& call);

// Runs `program` on n elements, contiguous float32, of each operand. `out` may be one of them.
// noexcept, no allocation.
void run_program(const Program& program, std::span<const float* const> operands, int64_t n,
                 float* out);

// Runs `program` on elements [begin, end) of row `row` of a matrix: register 0 is that piece of
// `result` itself (float32, contiguous), the others come from `operands`, which broadcast over a
// [rows, columns] view. Writes in place. noexcept, no allocation.
struct RowOperand {
  const std::byte* data;
  DType dtype;
  int64_t row_stride, column_stride;  // elements
};
void run_epilogue(const Program& program, std::span<const RowOperand> operands, int64_t row,
                  int64_t begin, int64_t end, float* result);

}  // namespace lumen::graph
