#include "lib/nn/altup.h"

#include "lib/base/strings.h"

namespace lumen::nn {
namespace {

Tensor later_streams(int64_t count) {
  std::vector<float> is_later(static_cast<size_t>(count), 1);
  is_later[0] = 0;
  return graph::constant(Array::from<float>(is_later, {count, 1}));
}

Tensor mean_square(const Tensor& x) {
  return ops::mean(ops::square(x), -1);
}

// v · rms(x) / rms(v), given the root of x.
Tensor as_long_as(const Tensor& v, const Tensor& root) {
  constexpr double kLeast = 1e-5;
  return ops::div(ops::mul(v, root), ops::sqrt(ops::maximum(mean_square(v), kLeast)));
}

std::vector<Linear> projections_of(const Parameters& place, const AltUpShape& shape) {
  std::vector<Linear> result;
  for (int64_t i = 0; i + 1 < shape.streams; ++i) {
    result.emplace_back(place.without_additions() / str(i), shape.hidden, shape.hidden, false);
  }
  return result;
}

}  // namespace

AltUp::AltUp(const Parameters& parameters, const AltUpShape& shape)
    : shape_(shape),
      correction_coefs_(parameters / "correction_coefs", shape.streams, shape.streams, false),
      prediction_coefs_(parameters / "prediction_coefs", shape.streams,
                        shape.streams * shape.streams, false),
      modality_router_(parameters / "modality_router", shape.hidden, shape.streams, false),
      router_norm_(parameters / "router_norm", shape.hidden, shape.norm),
      is_later_(later_streams(shape.streams)) {}

Tensor AltUp::routed(const Tensor& x) const {
  const double scale = 1 / static_cast<double>(shape_.hidden);
  return ops::tanh(modality_router_(scaled(router_norm_(x), scale)));
}

Tensor AltUp::active(const Tensor& apart) const {
  return graph::reshape(graph::slice(apart, 2, shape_.active, shape_.active + 1),
                        {apart.dim(0), apart.dim(1), shape_.hidden});
}

Tensor AltUp::predicted(const Tensor& streams) const {
  const int64_t batch = streams.dim(0), tokens = streams.dim(1), count = shape_.streams;
  const Tensor apart = graph::reshape(streams, {batch, tokens, count, shape_.hidden});
  const Tensor coefs =
      graph::reshape(prediction_coefs_(routed(active(apart))), {batch, tokens, count, count});
  return ops::add(ops::matmul(coefs, apart), apart);
}

Tensor AltUp::corrected(const Tensor& predicted, const Tensor& computed) const {
  const int64_t batch = computed.dim(0), tokens = computed.dim(1);
  const Tensor coefs = graph::reshape(ops::add(correction_coefs_(routed(computed)), 1),
                                      {batch, tokens, shape_.streams, 1});
  const Tensor innovation =
      graph::reshape(ops::sub(computed, active(predicted)), {batch, tokens, 1, shape_.hidden});
  return ops::add(predicted, ops::mul(innovation, coefs));
}

Tensor AltUp::with_addition(const Tensor& corrected, const Tensor& addition) const {
  const int64_t batch = corrected.dim(0), tokens = corrected.dim(1);
  const Tensor added = graph::reshape(addition, {batch, tokens, 1, shape_.hidden});
  return graph::reshape(ops::add(corrected, ops::mul(added, is_later_)),
                        {batch, tokens, shape_.streams * shape_.hidden});
}

AltUpEnds::AltUpEnds(const Parameters& parameters, const AltUpShape& shape)
    : hidden_(shape.hidden),
      projections_(projections_of(parameters / "altup_projections", shape)),
      unembed_projections_(projections_of(parameters / "altup_unembed_projections", shape)) {}

Tensor AltUpEnds::streams_of(const Tensor& x) const {
  const Tensor root = ops::sqrt(mean_square(x));
  std::vector<Tensor> streams = {x};
  for (const Linear& projection : projections_) streams.push_back(as_long_as(projection(x), root));
  return ops::concat(streams, -1);
}

Tensor AltUpEnds::mean_of(const Tensor& streams) const {
  const auto stream = [&](int64_t i) {
    return graph::slice(streams, -1, i * hidden_, (i + 1) * hidden_);
  };
  const Tensor first = stream(0), root = ops::sqrt(mean_square(first));
  Tensor sum = first;
  int64_t i = 0;
  for (const Linear& projection : unembed_projections_) {
    sum = ops::add(sum, as_long_as(projection(stream(++i)), root));
  }
  return ops::mul(sum, 1 / static_cast<double>(i + 1));
}

}  // namespace lumen::nn
