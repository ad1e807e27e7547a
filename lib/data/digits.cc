// Digits drawn by ourselves: strokes in the unit square, bent, turned and rendered with noise.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/images.h"
#include "lib/data/shuffle.h"

namespace lumen::data {
namespace {

struct Point {
  float x, y;  // right and down, the glyph fills [0, 1]²
};
using Stroke = std::vector<Point>;

// A part of an ellipse in straight pieces; degrees clockwise from the right.
Stroke arc(Point center, float rx, float ry, float from, float to) {
  constexpr int kPieces = 14;
  Stroke stroke;
  for (int i = 0; i <= kPieces; ++i) {
    const float angle =
        (from + (to - from) * static_cast<float>(i) / kPieces) * std::numbers::pi_v<float> / 180;
    stroke.push_back({center.x + rx * std::cos(angle), center.y + ry * std::sin(angle)});
  }
  return stroke;
}

Stroke joined(Stroke first, const Stroke& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// People write some digits in two ways; `variant` chooses.
std::vector<Stroke> glyph(int digit, bool variant) {
  switch (digit) {
    case 0:
      return {arc({.5f, .5f}, .27f, .42f, -90, 270)};
    case 1:
      if (variant) return {{{.5f, .08f}, {.5f, .92f}}};
      return {{{.32f, .28f}, {.52f, .08f}, {.52f, .92f}}, {{.33f, .92f}, {.7f, .92f}}};
    case 2:
      return {joined(arc({.49f, .31f}, .25f, .23f, -170, 35), {{.24f, .92f}, {.78f, .92f}})};
    case 3:
      if (variant) {
        return {joined({{.26f, .08f}, {.72f, .08f}, {.45f, .43f}},
                       arc({.47f, .67f}, .26f, .25f, -85, 150))};
      }
      return {arc({.47f, .29f}, .23f, .21f, -150, 90), arc({.47f, .71f}, .26f, .21f, -90, 150)};
    case 4:
      if (variant) {
        return {{{.3f, .1f}, {.24f, .56f}, {.8f, .56f}}, {{.65f, .12f}, {.63f, .92f}}};
      }
      return {{{.62f, .92f}, {.62f, .08f}, {.2f, .64f}, {.82f, .64f}}};
    case 5:
      return {joined({{.74f, .08f}, {.3f, .08f}, {.27f, .46f}},
                     arc({.47f, .66f}, .27f, .26f, -130, 145))};
    case 6:
      return {joined({{.67f, .08f}, {.42f, .26f}, {.27f, .52f}},
                     arc({.5f, .68f}, .24f, .24f, -180, 185))};
    case 7:
      if (variant) {
        return {{{.22f, .1f}, {.78f, .1f}, {.4f, .92f}}, {{.34f, .5f}, {.7f, .5f}}};
      }
      return {{{.22f, .1f}, {.78f, .1f}, {.46f, .92f}}};
    case 8:
      return {arc({.5f, .28f}, .2f, .2f, -90, 270), arc({.5f, .7f}, .26f, .22f, -90, 270)};
    default:
      if (variant) {
        return {joined(arc({.48f, .32f}, .24f, .24f, 0, 360), {{.7f, .6f}, {.66f, .92f}})};
      }
      return {joined(arc({.5f, .31f}, .23f, .23f, 0, 360),
                     joined({{.73f, .6f}}, arc({.49f, .66f}, .24f, .26f, 10, 130)))};
  }
}

// Bends and places a glyph: x ↦ A (x + wave + jitter − ½) + ½ + shift, in pixels.
void distort(std::vector<Stroke>& strokes, Philox& random, float size) {
  const auto uniform = [&](double low, double high) {
    return static_cast<float>(low + (high - low) * random.uniform());
  };
  const float turn = uniform(-.3, .3), slant = uniform(-.35, .35);
  const float width = uniform(.55, .9), height = uniform(.62, .9);
  const float dx = uniform(-.1, .1), dy = uniform(-.08, .08);
  const float wave = uniform(-.07, .07), phase = uniform(0, 6.28), wave_y = uniform(-.05, .05);
  const float c = std::cos(turn), s = std::sin(turn);
  for (Stroke& stroke : strokes) {
    for (Point& p : stroke) {
      const float x = p.x + wave * std::sin(5 * p.y + phase) + uniform(-.018, .018) - .5f;
      const float y = p.y + wave_y * std::sin(5 * p.x + phase) + uniform(-.018, .018) - .5f;
      const float across = width * (x - slant * y), down = height * y;
      p = {size * (c * across - s * down + .5f + dx), size * (s * across + c * down + .5f + dy)};
    }
  }
}

// Raises `ink` [size, size] to 1 inside `radius` of the segment, with a soft edge of one pixel.
void draw_segment(Point a, Point b, float radius, int64_t size, std::vector<float>& ink) {
  const auto clamp = [&](float v) {
    return std::clamp<int64_t>(static_cast<int64_t>(v), 0, size - 1);
  };
  const float reach = radius + 1;
  const float vx = b.x - a.x, vy = b.y - a.y, length2 = std::max(vx * vx + vy * vy, 1e-6f);
  for (int64_t row = clamp(std::min(a.y, b.y) - reach); row <= clamp(std::max(a.y, b.y) + reach);
       ++row) {
    for (int64_t column = clamp(std::min(a.x, b.x) - reach);
         column <= clamp(std::max(a.x, b.x) + reach); ++column) {
      const float px = static_cast<float>(column) + .5f - a.x;
      const float py = static_cast<float>(row) + .5f - a.y;
      const float along = std::clamp((px * vx + py * vy) / length2, 0.f, 1.f);
      const float x = px - along * vx, y = py - along * vy;
      const float cover = std::clamp(radius + .5f - std::sqrt(x * x + y * y), 0.f, 1.f);
      float& pixel = ink[static_cast<size_t>(row * size + column)];
      pixel = std::max(pixel, cover);
    }
  }
}

// One digit as ink in [0, 1], with now and then a stray line across it.
std::vector<float> draw_ink(int digit, Philox& random, int64_t size) {
  const auto extent = static_cast<float>(size);
  std::vector<Stroke> strokes = glyph(digit, random.next_u32() % 2 == 0);
  distort(strokes, random, extent);
  if (random.next_u32() % 5 == 0) {
    const auto anywhere = [&] { return static_cast<float>(random.uniform()) * extent; };
    const Point from = {anywhere(), anywhere()};
    strokes.push_back(
        {from, {from.x + .25f * (anywhere() - from.x), from.y + .25f * (anywhere() - from.y)}});
  }
  const float radius = extent / 28 * static_cast<float>(.55 + .95 * random.uniform());
  std::vector<float> ink(static_cast<size_t>(size * size));
  for (const Stroke& stroke : strokes) {
    for (size_t i = 1; i < stroke.size(); ++i) {
      draw_segment(stroke[i - 1], stroke[i], radius, size, ink);
    }
  }
  return ink;
}

// The pixels of a channel: ground and ink mixed, and noise that is nearly normal (four uniform
// numbers added).
void render(const std::vector<float>& ink, float ground, float colour, float noise, Philox& random,
            uint8_t* pixels) {
  for (size_t i = 0; i < ink.size(); ++i) {
    const uint32_t word = random.next_u32();
    const int sum =
        static_cast<int>((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24)) -
        510;
    const float value =
        255 * (ground + (colour - ground) * ink[i]) + noise * static_cast<float>(sum);
    pixels[i] = static_cast<uint8_t>(std::clamp(value + .5f, 0.f, 255.f));
  }
}

}  // namespace

LabelledImages draw_digits(int64_t first, int64_t count, int64_t size, int64_t channels,
                           uint64_t seed) {
  LabelledImages images;
  images.channels = channels;
  images.height = images.width = size;
  images.pixels.resize(static_cast<size_t>(count * images.pixels_per_image()));
  for (int64_t i = 0; i < count; ++i) {
    const int digit = static_cast<int>((first + i) % 10);
    Philox random = random_stream(seed, Purpose::kDigits, static_cast<uint64_t>(first + i));
    const std::vector<float> ink = draw_ink(digit, random, size);
    const float noise = static_cast<float>(.04 + .12 * random.uniform());
    std::array<float, 3> ground{}, colour{1, 1, 1};
    if (channels == 1) {
      colour[0] = static_cast<float>(.6 + .4 * random.uniform());
    } else {
      // Light on dark or dark on light, never too near to each other.
      const bool dark = random.next_u32() % 2 == 0;
      for (size_t c = 0; c < 3; ++c) {
        const auto low = static_cast<float>(.4 * random.uniform());
        const auto high = static_cast<float>(.55 + .45 * random.uniform());
        ground[c] = dark ? high : low;
        colour[c] = dark ? low : high;
      }
    }
    images.labels.push_back(digit);
    uint8_t* out = images.pixels.data() + i * images.pixels_per_image();
    for (int64_t c = 0; c < channels; ++c) {
      render(ink, ground[static_cast<size_t>(c)], colour[static_cast<size_t>(c)], noise, random,
             out + c * size * size);
    }
  }
  return images;
}

ImageFiles draw_digit_sets(const DataOptions& options) {
  constexpr int64_t kMostImages = 1'000'000, kLargest = 256;
  const int64_t size = options.image_size == 0 ? 28 : options.image_size;
  const int64_t channels = options.channels == 0 ? 1 : options.channels;
  if (options.digits_train < 1 || options.digits_train > kMostImages) {
    throw DataOptionError("digits_train",
                          str(options.digits_train, " digits, expected 1 to ", kMostImages));
  }
  if (options.digits_eval < 0 || options.digits_eval > kMostImages) {
    throw DataOptionError("digits_eval",
                          str(options.digits_eval, " digits, expected 0 to ", kMostImages));
  }
  if (size < 8 || size > kLargest) {
    throw DataOptionError("image_size", str(size, ", expected 8 to ", kLargest, " for digits"));
  }
  ImageFiles found;
  found.name = "drawn digits";
  for (int digit = 0; digit < 10; ++digit) found.classes.push_back(str(digit));
  found.train = draw_digits(0, options.digits_train, size, channels, options.digits_seed);
  if (options.digits_eval > 0) {
    // Numbers that no training image has.
    found.eval = draw_digits(kMostImages, options.digits_eval, size, channels, options.digits_seed);
  }
  SourceFile drawn;
  drawn.path = "builtin:digits";
  drawn.samples = options.digits_train + options.digits_eval;
  found.files.push_back(drawn);
  return found;
}

}  // namespace lumen::data
