#include "lib/runtime/training/loss_curve.h"

#include <algorithm>
#include <cmath>

#include "lib/base/strings.h"

namespace lumen::runtime {
namespace {

using io::Json;

constexpr double kWidth = 800, kHeight = 450;
constexpr double kLeft = 70, kRight = 20, kTop = 30, kBottom = 45;
constexpr int kBins = 710;  // one per pixel of the plot

struct Point {
  double x, y;
};

std::vector<Point> series(const std::vector<Json>& rows, const char* name) {
  std::vector<Point> points;
  for (const Json& row : rows) {
    const Json* value = io::find_value(row, name);
    if (!value || !value->is_number()) continue;
    points.push_back({row["step"].get<double>(), value->get<double>()});
  }
  return points;
}

std::vector<Point> thinned(const std::vector<Point>& points) {
  if (points.size() <= kBins) return points;
  std::vector<Point> out;
  const double first = points.front().x, span = points.back().x - first;
  size_t i = 0;
  for (int bin = 0; bin < kBins; ++bin) {
    Point sum = {0, 0};
    double count = 0;
    const double end = first + span * (bin + 1) / kBins;
    for (; i < points.size() && (points[i].x <= end || bin == kBins - 1); ++i, ++count) {
      sum = {sum.x + points[i].x, sum.y + points[i].y};
    }
    if (count > 0) out.push_back({sum.x / count, sum.y / count});
  }
  return out;
}

// 1, 2 or 5 times a power of ten, about `span` / 6.
double nice_step(double span) {
  const double raw = std::max(span, 1e-12) / 6;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

// Values to coordinates.
struct Axes {
  double x0, x1, y0, y1;
  bool logarithmic;

  double level(double y) const { return logarithmic ? std::log10(y) : y; }
  std::string x(double value) const {
    return fixed(kLeft + (value - x0) / (x1 - x0) * (kWidth - kLeft - kRight), 1);
  }
  std::string y(double value) const {
    const double share = (level(value) - level(y0)) / (level(y1) - level(y0));
    return fixed(kHeight - kBottom - share * (kHeight - kTop - kBottom), 1);
  }
};

Axes axes_of(const std::vector<Point>& train, const std::vector<Point>& eval) {
  Axes axes = {INFINITY, -INFINITY, INFINITY, -INFINITY, false};
  for (const auto* points : {&train, &eval}) {
    for (const Point& point : *points) {
      axes.x0 = std::min(axes.x0, point.x), axes.x1 = std::max(axes.x1, point.x);
      axes.y0 = std::min(axes.y0, point.y), axes.y1 = std::max(axes.y1, point.y);
    }
  }
  if (train.empty() && eval.empty()) axes = {0, 1, 0, 1, false};
  if (axes.x1 <= axes.x0) axes.x1 = axes.x0 + 1;
  axes.logarithmic = axes.y0 > 0 && axes.y1 / axes.y0 > 20;
  if (!axes.logarithmic) {
    axes.y0 = std::min(axes.y0, 0.0);
    if (axes.y1 <= axes.y0) axes.y1 = axes.y0 + 1;
  }
  return axes;
}

std::string polyline(const std::vector<Point>& points, const Axes& axes, const char* color) {
  std::string out = "<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"" + std::string(color) +
                    "\" points=\"";
  for (const Point& point : points) out += axes.x(point.x) + "," + axes.y(point.y) + " ";
  return out + "\"/>\n";
}

std::string tick(const std::string& x1, const std::string& y1, const std::string& x2,
                 const std::string& y2) {
  return "<path stroke=\"#ddd\" d=\"M" + x1 + " " + y1 + "L" + x2 + " " + y2 + "\"/>\n";
}

std::string label(const std::string& x, const std::string& y, const char* anchor,
                  const std::string& text) {
  return "<text x=\"" + x + "\" y=\"" + y + "\" text-anchor=\"" + anchor + "\">" + text +
         "</text>\n";
}

std::string short_number(double value) {
  if (value != 0 && std::abs(value) < 0.01) return str(static_cast<float>(value));
  std::string text = fixed(value, 3);
  if (text.find('.') == text.npos) return text;
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string grid(const Axes& axes) {
  std::string out;
  const std::string left = fixed(kLeft, 1), right = fixed(kWidth - kRight, 1);
  const std::string top = fixed(kTop, 1), bottom = fixed(kHeight - kBottom, 1);
  std::vector<double> levels;
  if (axes.logarithmic) {
    for (double power = std::pow(10, std::floor(std::log10(axes.y0))); power <= axes.y1;
         power *= 10) {
      for (const double factor : {1.0, 2.0, 5.0}) levels.push_back(power * factor);
    }
  } else {
    const double step = nice_step(axes.y1 - axes.y0);
    const auto first = static_cast<int>(std::ceil(axes.y0 / step));
    for (int i = first; i * step <= axes.y1 && i < first + 100; ++i) levels.push_back(i * step);
  }
  for (const double level : levels) {
    if (level < axes.y0 || level > axes.y1) continue;
    out += tick(left, axes.y(level), right, axes.y(level));
    out += label(fixed(kLeft - 6, 1), axes.y(level), "end", short_number(level));
  }
  const double step = std::max(1.0, nice_step(axes.x1 - axes.x0));
  for (int i = 0; i < 100; ++i) {
    const double x = (std::ceil(axes.x0 / step) + i) * step;
    if (x > axes.x1) break;
    out += tick(axes.x(x), top, axes.x(x), bottom);
    out += label(axes.x(x), fixed(kHeight - kBottom + 18, 1), "middle", short_number(x));
  }
  return out;
}

}  // namespace

std::string loss_curve(const std::vector<Json>& rows) {
  constexpr const char* kTrain = "#1f6fb4";
  constexpr const char* kEval = "#d2691e";
  const std::vector<Point> train = thinned(series(rows, "loss"));
  const std::vector<Point> eval = series(rows, "eval_loss");
  const Axes axes = axes_of(train, eval);
  std::string out = str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", kWidth, " ",
                        kHeight, "\" font-family=\"sans-serif\" font-size=\"12\">\n",
                        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  out += grid(axes);
  out += polyline(train, axes, kTrain);
  if (!eval.empty()) out += polyline(eval, axes, kEval);
  for (const Point& point : eval) {
    out += "<circle r=\"3\" fill=\"" + std::string(kEval) + "\" cx=\"" + axes.x(point.x) +
           "\" cy=\"" + axes.y(point.y) + "\"/>\n";
  }
  out += str("<text x=\"", kLeft, "\" y=\"18\"><tspan fill=\"", kTrain, "\">loss</tspan>",
             eval.empty() ? "" : str("  <tspan fill=\"", kEval, "\">eval_loss</tspan>"),
             axes.logarithmic ? " (logarithmic)" : "", "</text>\n");
  out += label(fixed(kWidth / 2, 1), fixed(kHeight - 8, 1), "middle", "step");
  return out + "</svg>\n";
}

}  // namespace lumen::runtime
