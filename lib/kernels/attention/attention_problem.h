// For tests: calls of attention() beside what they should give.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "lib/kernels/attention.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/testing/random_floats.h"

namespace lumen::kernels {

// Queries, keys and values of one call. Keys and values are stored in `dtype` with the layout
// [batch, kv_heads, capacity, head_dim]; k_values and v_values hold what the stored bytes mean.
struct AttentionProblem {
  int64_t batch, tokens, heads, kv_heads, head_dim, start;
  bool causal = true;
  int64_t window = 0, chunk = 0;
  DType dtype = DType::kF32;
  bool bf16 = false;
  float cap = 0;
  float max_bias = 0;
  bool sinks = false;                            // as large as scores, and larger
  std::vector<int32_t> starts = {}, slots = {};  // of the batch rows; none: start, their own

  int64_t positions = 0, capacity = 0;
  std::vector<float> q = {}, k_values = {}, v_values = {}, sink_values = {};
  std::vector<std::byte> k = {}, v = {};

  std::vector<std::byte> store(std::vector<float>& values) const {
    const auto n = static_cast<int64_t>(values.size());
    std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(dtype, n)));
    from_float(dtype, values.data(), bytes.data(), n);
    to_float(dtype, bytes.data(), values.data(), n);
    return bytes;
  }

  void fill(Philox& random) {
    if (starts.empty()) starts = {static_cast<int32_t>(start)};
    positions = start + tokens;
    capacity = positions + 3;
    q = random_floats(random, batch * tokens * heads * head_dim);
    k_values = random_floats(random, batch * kv_heads * capacity * head_dim);
    v_values = random_floats(random, batch * kv_heads * capacity * head_dim);
    k = store(k_values);
    v = store(v_values);
    if (sinks) sink_values = random_floats(random, heads);
    for (float& sink : sink_values) sink = 4 * sink + 2;
  }

  AttentionArgs args(std::vector<float>& out) const {
    const int64_t row = row_bytes(dtype, head_dim);
    const KvView view{nullptr, dtype, kv_heads * capacity * row, capacity * row, row};
    out.assign(q.size(), -77.0f);
    AttentionArgs args{batch,
                       tokens,
                       heads,
                       kv_heads,
                       head_dim,
                       positions,
                       starts.data(),
                       starts.size() == 1 ? 0 : 1,
                       slots.empty() ? nullptr : slots.data(),
                       causal,
                       window,
                       chunk,
                       1 / std::sqrt(static_cast<float>(head_dim)),
                       cap,
                       max_bias,
                       sinks ? sink_values.data() : nullptr,
                       bf16,
                       q.data(),
                       tokens * heads * head_dim,
                       heads * head_dim,
                       head_dim,
                       view,
                       view,
                       out.data(),
                       nullptr};
    args.k.data = k.data();
    args.v.data = v.data();
    return args;
  }

  std::vector<float> run(int threads) const {
    ThreadPool pool(threads);
    std::vector<float> out;
    AttentionArgs call = args(out);
    // Garbage in the workspace must not matter; exactly as many bytes as asked for.
    std::vector<std::byte> workspace(attention_workspace_bytes(call, threads), std::byte{0xFF});
    call.workspace = workspace.data();
    attention(pool, call);
    return out;
  }

  // The same from token `first` on, whose beginning is cached; of one batch row.
  AttentionProblem from_token(int64_t first) const {
    AttentionProblem rest = *this;
    rest.start = first;
    rest.starts = {static_cast<int32_t>(first)};
    rest.tokens = tokens - first;
    rest.q.assign(q.begin() + first * heads * head_dim, q.end());
    return rest;
  }

  // The same with `wrong` as number `at` of k_values or v_values.
  AttentionProblem spoilt(std::vector<float> AttentionProblem::*values, size_t at,
                          float wrong) const {
    AttentionProblem problem = *this;
    (problem.*values)[at] = wrong;
    problem.k = problem.store(problem.k_values);
    problem.v = problem.store(problem.v_values);
    return problem;
  }

  std::vector<double> expected() const {
    std::vector<double> out;
    const int64_t group = heads / kv_heads;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t slot = slots.empty() ? b : slots[static_cast<size_t>(b)];
          const int64_t at = (slot * kv_heads + h / group) * capacity * head_dim;
          const int64_t own = starts[starts.size() == 1 ? 0 : static_cast<size_t>(b)] + t;
          const auto sees = [&](int64_t p) {
            if (!causal) return true;
            const bool near = window == 0 || p > own - window;
            return p <= own && near && (chunk == 0 || p / chunk == own / chunk);
          };
          const auto row = reference::attention(
              &q[static_cast<size_t>(((b * tokens + t) * heads + h) * head_dim)],
              &k_values[size_t(at)], &v_values[size_t(at)], positions, head_dim,
              1 / std::sqrt(double(head_dim)), cap, sees,
              sinks ? sink_values[size_t(h)] : -std::numeric_limits<double>::infinity(),
              max_bias == 0 ? 0 : reference::bias_slope(heads, max_bias, h), own);
          out.insert(out.end(), row.begin(), row.end());
        }
      }
    }
    return out;
  }

  std::string describe() const {
    return "batch " + std::to_string(batch) + " tokens " + std::to_string(tokens) + " heads " +
           std::to_string(heads) + "/" + std::to_string(kv_heads) + " head_dim " +
           std::to_string(head_dim) + " start " + std::to_string(start) + " causal " +
           std::to_string(causal) + " window " + std::to_string(window) + " chunk " +
           std::to_string(chunk) + " cap " + std::to_string(cap) + " max_bias " +
           std::to_string(max_bias) + (sinks ? " sinks " : " ") + std::string(name(dtype));
  }
};

inline double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(a[i] - b[i]);
    if (!(difference <= worst)) worst = difference;  // NaN counts
  }
  return worst;
}

}  // namespace lumen::kernels
