// Adafactor (Shazeer & Stern 2018) as torch.optim.Adafactor computes it: the second moment of a
// matrix is kept as its row and column means, r and c, of g²:
//   ω = t^beta2_decay; r += ω (mean_columns g² − r), c += ω (mean_rows g² − c);
//   v = r cᵀ / max(mean(r), eps); u = g / √max(v, eps²);
//   p −= α u / max(1, rms(u) / clip_threshold), α = max(scale_eps, rms(p)) · min(lr, 1/√t).
// Vectors keep v itself. Tensors of higher rank are stacks of matrices of their last two axes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/kernels/optimizer_step.h"
#include "lib/optim/slot_optimizer.h"

namespace lumen::optim {
namespace {

constexpr int64_t kColumns = 64;  // per task: one cache line times four of every row

// A parameter as a stack of matrices; of a vector, one row.
struct Stack {
  int64_t matrices, rows, columns;
};
Stack stack_of(const Shape& shape) {
  if (shape.rank() < 2) return {1, 1, shape.elements()};
  const int64_t rows = shape[-2], columns = shape[-1];
  return {shape.elements() / std::max<int64_t>(1, rows * columns), rows, columns};
}

// from + weight · (to − from), not rounded to what a `from` much larger than `to` leaves of it.
float moved(float from, double to, double weight) {
  return static_cast<float>((1 - weight) * from + weight * to);
}

class Adafactor : public SlotOptimizer {
 public:
  Adafactor(const OptimizerConfig& config, std::vector<NamedParameter> parameters)
      : SlotOptimizer(config, std::move(parameters), Unit::kParameter),
        eps_(config.eps.value_or(std::numeric_limits<float>::epsilon())),
        scale_eps_(config.scale_eps.value_or(1e-3)),
        beta2_decay_(config.beta2_decay.value_or(-0.8)),
        clip_threshold_(config.clip_threshold.value_or(1)) {
    for (Slot& slot : slots_) {
      Shape row = slot.value.shape(), column = row;
      if (row.rank() < 2) {
        keep(slot, "variance", row);
        continue;
      }
      row[-1] = 1;
      column[-2] = 1;
      keep(slot, "row_var", row);
      keep(slot, "col_var", column);
    }
  }

 private:
  // The second moment of one row of one matrix: a factor times one number per column.
  struct RowMoment {
    double factor;
    const float* columns;
  };

  void update(ThreadPool& pool, Slot& slot, const Update& u) override {
    const Stack stack = stack_of(slot.value.shape());
    const bool factored = slot.value.shape().rank() >= 2;
    const auto t = static_cast<double>(u.t);
    const double weight = std::pow(t, beta2_decay_);
    const double rms = std::sqrt(kernels::power_sum(pool, slot.data(), slot.size(), 2) /
                                 static_cast<double>(slot.size()));
    const double alpha = std::max(scale_eps_, rms) * std::min(u.lr, 1 / std::sqrt(t));
    if (slot.weight_decay != 0) {
      kernels::scale(pool, slot.size(), static_cast<float>(1 - u.lr * slot.weight_decay),
                     slot.data());
    }
    if (factored) {
      update_row_means(pool, slot, u, stack, weight);
      update_column_means(pool, slot, u, stack, weight);
    } else {
      float* variance = slot.state_data(0);
      for (int64_t i = 0; i < slot.size(); ++i) {
        const double g = u.gradient_scale * u.gradient[i];
        variance[i] = moved(variance[i], g * g, weight);
      }
    }
    apply(pool, slot, u, stack, alpha);
  }

  void update_row_means(ThreadPool& pool, Slot& slot, const Update& u, const Stack& stack,
                        double weight) const {
    float* means = slot.state_data(0);
    auto body = [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const float* g = u.gradient + row * stack.columns;
        double sum = 0;
        for (int64_t j = 0; j < stack.columns; ++j) sum += static_cast<double>(g[j]) * g[j];
        const double mean =
            sum * u.gradient_scale * u.gradient_scale / static_cast<double>(stack.columns);
        means[row] = moved(means[row], mean, weight);
      }
    };
    pool.parallel_for(stack.matrices * stack.rows, 1, body);
  }

  void update_column_means(ThreadPool& pool, Slot& slot, const Update& u, const Stack& stack,
                           double weight) const {
    float* means = slot.state_data(1);
    const int64_t blocks = (stack.columns + kColumns - 1) / kColumns;
    auto body = [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t matrix = task / blocks, first = task % blocks * kColumns;
        const int64_t count = std::min(kColumns, stack.columns - first);
        double sums[kColumns] = {};
        for (int64_t i = 0; i < stack.rows; ++i) {
          const float* g = u.gradient + (matrix * stack.rows + i) * stack.columns + first;
          for (int64_t j = 0; j < count; ++j) sums[j] += static_cast<double>(g[j]) * g[j];
        }
        const double factor = u.gradient_scale * u.gradient_scale / static_cast<double>(stack.rows);
        float* mean = means + matrix * stack.columns + first;
        for (int64_t j = 0; j < count; ++j) {
          mean[j] = moved(mean[j], factor * sums[j], weight);
        }
      }
    };
    pool.parallel_for(stack.matrices * blocks, 1, body);
  }

  // One number per matrix: 1 / max(mean of its row means, eps).
  std::vector<double> row_factors(Slot& slot, const Stack& stack) const {
    std::vector<double> factors(stack.matrices);
    const float* rows = slot.state_data(0);
    for (int64_t matrix = 0; matrix < stack.matrices; ++matrix) {
      double sum = 0;
      for (int64_t i = 0; i < stack.rows; ++i) sum += rows[matrix * stack.rows + i];
      factors[matrix] = 1 / std::max(sum / static_cast<double>(stack.rows), eps_);
    }
    return factors;
  }

  void apply(ThreadPool& pool, Slot& slot, const Update& u, const Stack& stack,
             double alpha) const {
    const bool factored = slot.value.shape().rank() >= 2;
    const std::vector<double> factors =
        factored ? row_factors(slot, stack) : std::vector<double>(1, 1.0);
    const float *first = slot.state_data(0), *second = slot.state_data(1);
    auto moment = [&](int64_t row) -> RowMoment {
      if (!factored) return {1, first};
      const int64_t matrix = row / stack.rows;
      return {first[row] * factors[matrix], second + matrix * stack.columns};
    };
    const double least = eps_ * eps_;
    const int64_t rows = stack.matrices * stack.rows;
    std::vector<double> squares(rows);  // of the update, added up in order: any number of threads
    pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const RowMoment v = moment(row);
        const float* g = u.gradient + row * stack.columns;
        double sum = 0;
        for (int64_t j = 0; j < stack.columns; ++j) {
          const double x = u.gradient_scale * g[j];
          sum += x * x / std::max(v.factor * v.columns[j], least);
        }
        squares[row] = sum;
      }
    });
    double total = 0;
    for (double square : squares) total += square;
    const double rms = std::sqrt(total / static_cast<double>(slot.size()));
    const double step = alpha / std::max(1.0, rms / clip_threshold_) * u.gradient_scale;
    float* p = slot.data();
    pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const RowMoment v = moment(row);
        const float* g = u.gradient + row * stack.columns;
        float* out = p + row * stack.columns;
        for (int64_t j = 0; j < stack.columns; ++j) {
          const double root = std::sqrt(std::max(v.factor * v.columns[j], least));
          out[j] = static_cast<float>(out[j] - step * g[j] / root);
        }
      }
    });
  }

  double eps_, scale_eps_, beta2_decay_, clip_threshold_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const OptimizerConfig& config,
                                          std::vector<NamedParameter> parameters) {
  return std::make_unique<Adafactor>(config, std::move(parameters));
}

}  // namespace lumen::optim
