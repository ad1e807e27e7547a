#include "lib/kernels/expert_routes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lumen::kernels {

void choose_experts(const float* logits, int64_t experts, int64_t used, bool normalize,
                    int32_t* chosen, float* probability) {
  float largest = logits[0], all = 0, taken = 0;
  for (int64_t e = 1; e < experts; ++e) largest = std::max(largest, logits[e]);
  for (int64_t e = 0; e < experts; ++e) all += std::exp(logits[e] - largest);
  // The next is the largest of those behind the last one in the order by size and place.
  for (int64_t i = 0; i < used; ++i) {
    int64_t best = -1;
    for (int64_t e = 0; e < experts; ++e) {
      if (std::find(chosen, chosen + i, e) != chosen + i) continue;
      if (best < 0 || logits[e] > logits[best]) best = e;
    }
    chosen[i] = static_cast<int32_t>(best);
  }
  std::sort(chosen, chosen + used);
  for (int64_t i = 0; i < used; ++i) {
    probability[i] = std::exp(logits[chosen[i]] - largest) / all;
    taken += probability[i];
  }
  if (!normalize) return;
  for (int64_t i = 0; i < used; ++i) probability[i] /= taken;
}

ExpertsShape shape_of(const ExpertsArgs& args) {
  const Weight& up = args.up.front();
  return {args.m, up.cols, up.rows, static_cast<int64_t>(args.up.size()), args.used};
}

void route(ThreadPool& pool, const ExpertsArgs& args, Routes& routes) {
  constexpr int64_t kTokensAtOnce = 16;
  const auto experts = static_cast<int64_t>(args.up.size());
  const int64_t used = args.used, slots = args.m * used;
  pool.parallel_for(args.m, kTokensAtOnce, [&](int64_t t, int64_t end, int) {
    for (; t < end; ++t) {
      choose_experts(args.logits + t * args.logits_stride, experts, used, args.normalize,
                     routes.chosen + t * used, routes.probability + t * used);
    }
  });
  std::fill_n(routes.begin, experts + 1, 0);
  for (int64_t i = 0; i < slots; ++i) ++routes.begin[routes.chosen[i] + 1];
  for (int64_t e = 0; e < experts; ++e) {
    if (routes.begin[e + 1] > 0) routes.active[routes.actives++] = static_cast<int32_t>(e);
    routes.begin[e + 1] += routes.begin[e];
  }
  // begin[e] moves to the end of its slots, which is where those of e + 1 begin.
  for (int64_t i = 0; i < slots; ++i) {
    const int32_t expert = routes.chosen[i];
    const int64_t slot = routes.begin[expert]++;
    routes.token[slot] = static_cast<int32_t>(i / used);
    const float scale = args.scales != nullptr ? args.scales[expert] : 1;
    routes.weight[slot] = scale * routes.probability[i];
  }
  for (int64_t e = experts; e > 0; --e) routes.begin[e] = routes.begin[e - 1];
  routes.begin[0] = 0;
}

void gather_rows(ThreadPool& pool, const Routes& routes, int64_t expert, const float* x,
                 int64_t stride, int64_t n, float* to) {
  constexpr int64_t kRowsAtOnce = 8;
  const int32_t* const tokens = routes.token + routes.begin[expert];
  pool.parallel_for(routes.count(expert), kRowsAtOnce, [&](int64_t r, int64_t end, int) {
    for (; r < end; ++r) {
      std::memcpy(to + r * n, x + tokens[r] * stride, static_cast<size_t>(n) * sizeof(float));
    }
  });
}

void scatter_rows(ThreadPool& pool, const Routes& routes, int64_t expert, const float* x, int64_t n,
                  bool weighted, float* y) {
  constexpr int64_t kRowsAtOnce = 8;
  const int64_t first = routes.begin[expert];
  pool.parallel_for(routes.count(expert), kRowsAtOnce, [&](int64_t r, int64_t end, int) {
    for (; r < end; ++r) {
      const float factor = weighted ? routes.weight[first + r] : 1;
      add_scaled_row(x + r * n, factor, n, y + routes.token[first + r] * n);
    }
  });
}

}  // namespace lumen::kernels
