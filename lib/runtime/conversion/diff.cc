#include "lib/runtime/conversion/diff.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/conversion/conversion.h"
#include "lib/runtime/generation/session.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/signals.h"

namespace lumen::runtime {
namespace {

using io::Json;

constexpr int64_t kChunk = 1 << 16;  // numbers that are added up in one go

// A model and its tensors by their names in a directory.
struct Side {
  explicit Side(const std::string& name) : source{open_language_model(name), std::nullopt} {
    checked_parameters(source.files, nullptr);
    for (SourceTensor& tensor : directory_tensors(source)) {
      std::string target = tensor.target;
      tensors.emplace(std::move(target), std::move(tensor));
    }
  }
  Array values(const SourceTensor& tensor, ThreadPool& pool) const {
    return tensor_values(source, tensor, DType::kF32, pool);
  }

  Source source;
  std::map<std::string, SourceTensor> tensors;
};

Json shape_json(const Shape& shape) {
  return std::vector<int64_t>(shape.begin(), shape.end());
}

Json to_json(const TensorDifference& row) {
  Json out = {{"name", to_valid_utf8(row.name)},
              {"shape", shape_json(row.shape)},
              {"types", {name(row.dtype), name(row.other_dtype)}}};
  if (row.shape == row.other_shape) {
    out.update({{"max_abs", row.largest}, {"rms", row.rms}, {"cosine", row.cosine}});
  } else {
    out["other_shape"] = shape_json(row.other_shape);
  }
  return out;
}

std::string rounded(double value) {
  if (value == 0) return "0";
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 3);  // of the fourth digit
  return str(static_cast<float>(std::round(value / unit) * unit));
}

std::string to_line(const TensorDifference& row, size_t widest) {
  std::string out = printable(row.name, row.name.size());
  out.resize(std::max(out.size(), widest) + 2, ' ');
  const bool is_one_type = row.dtype == row.other_dtype;
  out += str(to_string(row.shape), "  ", name(row.dtype),
             is_one_type ? "" : str(" / ", name(row.other_dtype)), "  ");
  if (row.shape != row.other_shape) return out + "is " + to_string(row.other_shape) + " there\n";
  if (row.largest == 0) return out + "the same numbers\n";
  return out + str("max ", rounded(row.largest), "  rms ", rounded(row.rms), "  cosine ",
                   fixed(row.cosine, 6), "\n");
}

// The names that `there` lacks.
std::vector<std::string> only_in(const Side& here, const Side& there) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : here.tensors) {
    if (!there.tensors.contains(name)) names.push_back(to_valid_utf8(name));
  }
  return names;
}

struct Report {
  std::vector<TensorDifference> rows;
  std::vector<std::string> only_source, only_model;
  bool fits = true;  // the same tensors of the same shapes
};

std::string to_text(const ConvertOptions& options, const Report& report) {
  size_t widest = 0;
  for (const TensorDifference& row : report.rows) widest = std::max(widest, row.name.size());
  std::string out;
  const TensorDifference* most = nullptr;
  size_t same = 0;
  for (const TensorDifference& row : report.rows) {
    out += to_line(row, widest);
    if (row.shape != row.other_shape) continue;
    same += row.largest == 0;
    if (row.largest > 0 && (most == nullptr || row.cosine < most->cosine)) most = &row;
  }
  for (const auto& [names, model] : {std::pair(&report.only_source, &*options.model),
                                     std::pair(&report.only_model, &*options.output)}) {
    for (const std::string& name : *names) {
      out += str(printable(name, name.size()), "  only in ", io::place_of(*model), "\n");
    }
  }
  out += str(report.rows.size(), " tensors of both, ", same, " with the same numbers");
  if (most)
    out += str("; least alike: ", printable(most->name), ", cosine ", fixed(most->cosine, 6));
  return out + "\n";
}

Json to_json(const ConvertOptions& options, const Report& report) {
  Json rows = Json::array();
  for (const TensorDifference& row : report.rows) rows.push_back(to_json(row));
  return {{"schema", 1},
          {"source", to_valid_utf8(*options.model)},
          {"model", to_valid_utf8(*options.output)},
          {"fits", report.fits},
          {"tensors", std::move(rows)},
          {"only_in_source", report.only_source},
          {"only_in_model", report.only_model}};
}

}  // namespace

void compare_numbers(const Array& a, const Array& b, ThreadPool& pool, TensorDifference& result) {
  struct Sums {
    double largest = 0, squares = 0, product = 0, of_a = 0, of_b = 0;
  };
  const auto x = a.as<float>(), y = b.as<float>();
  const int64_t count = a.elements();
  std::vector<Sums> sums(static_cast<size_t>((count + kChunk - 1) / kChunk));
  pool.parallel_pieces(std::ssize(sums), 1, 1, [&](int64_t chunk, int64_t end, int) {
    for (; chunk < end; ++chunk) {
      Sums& sum = sums[static_cast<size_t>(chunk)];
      const int64_t stop = std::min(count, (chunk + 1) * kChunk);
      for (auto i = static_cast<size_t>(chunk * kChunk); i < static_cast<size_t>(stop); ++i) {
        const double p = x[i], q = y[i], d = p - q;
        sum.largest = std::max(sum.largest, std::abs(d));
        sum.squares += d * d;
        sum.product += p * q;
        sum.of_a += p * p;
        sum.of_b += q * q;
      }
    }
  });
  Sums all;
  for (const Sums& sum : sums) {
    all.largest = std::max(all.largest, sum.largest);
    all.squares += sum.squares;
    all.product += sum.product;
    all.of_a += sum.of_a;
    all.of_b += sum.of_b;
  }
  result.largest = all.largest;
  result.rms = std::sqrt(all.squares / static_cast<double>(std::max<int64_t>(count, 1)));
  const double lengths = std::sqrt(all.of_a) * std::sqrt(all.of_b);
  const bool is_same = all.largest == 0;
  result.cosine = is_same ? 1 : lengths > 0 ? std::min(1.0, all.product / lengths) : 0;
}

int diff(const ConvertOptions& options) {
  const Side source(*options.model), model(*options.output);
  SignalWatch signals;
  ThreadPool pool(static_cast<int>(options.threads.value_or(default_thread_count())));
  Report report{{}, only_in(source, model), only_in(model, source)};
  report.fits = report.only_source.empty() && report.only_model.empty();
  for (const auto& [name, tensor] : source.tensors) {
    const auto found = model.tensors.find(name);
    if (found == model.tensors.end()) continue;
    if (*signals.stop_flag()) {
      return 128 + (signals.termination() != 0 ? signals.termination() : SIGINT);
    }
    const SourceTensor& other = found->second;
    TensorDifference& row = report.rows.emplace_back();
    row = {name, tensor.shape(), other.shape(), tensor.array.dtype(), other.array.dtype()};
    if (row.shape != row.other_shape) {
      report.fits = false;
      continue;
    }
    compare_numbers(source.values(tensor, pool), model.values(other, pool), pool, row);
  }
  write_stdout(options.json ? to_json(options, report).dump(2) + "\n" : to_text(options, report));
  if (report.fits) return 0;
  fail(ErrorKind::kCheckFailed, io::place_of(*options.output), ": has not the tensors of ",
       io::place_of(*options.model), ", or not of the same shapes");
}

}  // namespace lumen::runtime
