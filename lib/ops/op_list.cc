// The list of operations. A static library silently drops objects that register themselves, so the
// list is explicit: one line per operation, in the order of ops.h.
#include <cmath>

#include "lib/base/error.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kAdd, kMul, kMod, kSub, kDiv, kNeg, kAbs, kMaximum, kMinimum, kFloor,
    kCeil, kRound, kTrunc, kSign, kRemainder, kFloorDivide, kPow, kExp2, kLog2, kSin, kSqrt, kRecip,
    kExp, kLog, kCos, kRsqrt, kExpm1, kLog1p, kErf, kTanh, kSigmoid, kSilu, kSiluSlope, kGelu,
    kGeluSlope, kGeluTanh, kGeluTanhSlope, kHardSwish, kHardSwishSlope, kRelu, kLeakyRelu,
    kLessThan, kEqual, kWhere, kClamp, kSumReduce, kSquareSumReduce, kMaxReduce, kMinReduce,
    kProdReduce, kProdGradient, kLinearScan, kCumprod, kTakeAlong, kScatter, kScatterAdd, kArgmax,
    kArgsort, kFlip, kLinear, kExperts, kExpertsBackward, kMatmul, kConv2d, kConvTranspose2d,
    kConv2dWeightGrad, kMaxPool2d, kMaxPool2dGrad, kAvgPool2d, kAvgPool2dGrad, kBatchNorm,
    kBatchNormStatistics, kBatchNormNarrow, kBatchNormRunning, kBatchNormBackward, kGroupNorm,
    kGroupNormBackward, kLerpState, kAddState, kSoftmax, kRmsNorm, kLogSoftmax, kLayerNorm,
    kSoftmaxBackward, kLogSoftmaxBackward, kSoftmaxColumns, kLogSoftmaxColumns,
    kSoftmaxColumnsBackward, kLogSoftmaxColumnsBackward, kRmsNormBackward, kLayerNormBackward,
    kCrossEntropy, kCrossEntropyBackward, kNll, kNllBackward, kLinearCrossEntropy,
    kLinearCrossEntropyGradients, kLogSigmoid, kBinaryCrossEntropy, kHuber, kUniform, kNormal,
    kDropout, kEmbedding, kEmbeddingGrad, kConcat, kRopeTable, kRope, kKvAppend, kAttention,
    kAttentionTraining, kAttentionBackward, kGatedDeltaRule, kGatedDeltaRuleBackward,
    kSelectiveScan, kSelectiveScanBackward, kRecurrent, kRecurrentBackward;

namespace {

constexpr const graph::OpDef* kOps[] = {
    &graph::kReshape,
    &graph::kPermute,
    &graph::kExpand,
    &graph::kSlice,
    &graph::kPad,
    &graph::kPadAxes,
    &graph::kContiguous,
    &kAdd,
    &kMul,
    &kMod,
    &kSub,
    &kDiv,
    &kNeg,
    &kAbs,
    &kMaximum,
    &kMinimum,
    &kFloor,
    &kCeil,
    &kRound,
    &kTrunc,
    &kSign,
    &kRemainder,
    &kFloorDivide,
    &kPow,
    &kExp2,
    &kLog2,
    &kSin,
    &kSqrt,
    &kRecip,
    &kExp,
    &kLog,
    &kCos,
    &kRsqrt,
    &kExpm1,
    &kLog1p,
    &kErf,
    &kTanh,
    &kSigmoid,
    &kSilu,
    &kSiluSlope,
    &kGelu,
    &kGeluSlope,
    &kGeluTanh,
    &kGeluTanhSlope,
    &kHardSwish,
    &kHardSwishSlope,
    &kRelu,
    &kLeakyRelu,
    &kLessThan,
    &kEqual,
    &kWhere,
    &kClamp,
    &kSumReduce,
    &kSquareSumReduce,
    &kMaxReduce,
    &kMinReduce,
    &kProdReduce,
    &kProdGradient,
    &kLinearScan,
    &kCumprod,
    &kTakeAlong,
    &kScatter,
    &kScatterAdd,
    &kArgmax,
    &kArgsort,
    &kFlip,
    &kLinear,
    &kExperts,
    &kExpertsBackward,
    &kMatmul,
    &kConv2d,
    &kConvTranspose2d,
    &kConv2dWeightGrad,
    &kMaxPool2d,
    &kMaxPool2dGrad,
    &kAvgPool2d,
    &kAvgPool2dGrad,
    &kBatchNorm,
    &kBatchNormStatistics,
    &kBatchNormNarrow,
    &kBatchNormRunning,
    &kBatchNormBackward,
    &kGroupNorm,
    &kGroupNormBackward,
    &kLerpState,
    &kAddState,
    &kSoftmax,
    &kRmsNorm,
    &kLogSoftmax,
    &kLayerNorm,
    &kSoftmaxBackward,
    &kLogSoftmaxBackward,
    &kSoftmaxColumns,
    &kLogSoftmaxColumns,
    &kSoftmaxColumnsBackward,
    &kLogSoftmaxColumnsBackward,
    &kRmsNormBackward,
    &kLayerNormBackward,
    &kCrossEntropy,
    &kCrossEntropyBackward,
    &kNll,
    &kNllBackward,
    &kLinearCrossEntropy,
    &kLinearCrossEntropyGradients,
    &kLogSigmoid,
    &kBinaryCrossEntropy,
    &kHuber,
    &kUniform,
    &kNormal,
    &kDropout,
    &kEmbedding,
    &kEmbeddingGrad,
    &kConcat,
    &kRopeTable,
    &kRope,
    &kKvAppend,
    &kAttention,
    &kAttentionTraining,
    &kAttentionBackward,
    &kGatedDeltaRule,
    &kGatedDeltaRuleBackward,
    &kSelectiveScan,
    &kSelectiveScanBackward,
    &kRecurrent,
    &kRecurrentBackward,
};

}  // namespace

std::span<const graph::OpDef* const> op_list() {
  return kOps;
}

void shape_error(const graph::Node& node, std::string_view why) {
  std::string inputs;
  for (const graph::NodePtr& input : node.inputs) {
    inputs += str(inputs.empty() ? "" : ", ", name(input->dtype), " ", to_string(input->shape));
  }
  fail(ErrorKind::kMalformed, node.op->name, "(", inputs, "): ", why);
}

void require_cap(const graph::Node& node, double cap) {
  if (cap >= 0 && std::isfinite(cap)) return;
  shape_error(node, str("the cap must be 0 or a positive number, not ", cap));
}

}  // namespace lumen::ops
