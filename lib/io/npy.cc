#include "lib/io/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>

#include "lib/base/checked.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/atomic_file.h"
#include "lib/io/byte_reader.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

struct NpyHeader {
  std::string descr;  // "<f4": byte order, kind, bytes
  bool fortran_order = false;
  Shape shape;
};

// Parses the header, a Python dictionary such as
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !has_descr) {
        has_descr = true;
        if (peek() == '[') fail(ErrorKind::kUnsupported, "structured arrays are not supported");
        header.descr = string();
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        header.fortran_order = boolean();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        header.shape = shape();
      } else {
        fail_here(str("the key ", quoted(key), " is unknown or there twice"));
      }
      if (!accept(',') && peek() != '}') fail_here("expected ',' or '}'");
    }
    if (peek() != '\0') fail_here("something follows the dictionary");
    if (!has_descr || !has_order || !has_shape) {
      fail_here("expected the keys 'descr', 'fortran_order' and 'shape'");
    }
    return header;
  }

 private:
  [[noreturn]] void fail_here(const std::string& what) const {
    fail(ErrorKind::kMalformed, "header, byte ", pos_, ": ", what);
  }

  // The next character that is no space; '\0' at the end.
  char peek() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\n')) ++pos_;
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++pos_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail_here(str("expected '", c, "' of a Python dictionary"));
  }

  std::string string() {
    const char quote = peek();
    const size_t end = quote == '\'' || quote == '"' ? text_.find(quote, pos_ + 1) : text_.npos;
    if (end == text_.npos) fail_here("expected a string");
    const std::string_view content = text_.substr(pos_ + 1, end - pos_ - 1);
    pos_ = end + 1;
    return std::string(content);
  }

  bool boolean() {
    peek();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(pos_, word.size()) == word) {
        pos_ += word.size();
        return word == "True";
      }
    }
    fail_here("expected True or False");
  }

  Shape shape() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      if (shape.rank() == limits::kTensorDims) fail_here("too many dimensions");
      peek();
      int64_t extent = -1;
      const auto result = std::from_chars(text_.data() + pos_, text_.data() + text_.size(), extent);
      if (result.ec != std::errc() || extent < 0) fail_here("expected an extent ≥ 0");
      pos_ = static_cast<size_t>(result.ptr - text_.data());
      accept('L');  // long integers of Python 2
      shape.push_back(extent);
      if (!accept(',') && peek() != ')') fail_here("expected ',' or ')'");
    }
    return shape;
  }

  std::string_view text_;
  size_t pos_ = 0;
};

NpyHeader read_npy_header(ByteReader& reader) {
  if (reader.remaining() < 10 || reader.text(kNpyMagic.size()) != kNpyMagic) {
    fail(ErrorKind::kMalformed, "not a .npy file");
  }
  const auto major = reader.read<uint8_t>();
  reader.skip(1);  // minor version
  if (major < 1 || major > 3) {
    fail(ErrorKind::kMalformed, ".npy version ", int{major}, "; Lumen reads 1 to 3");
  }
  const uint64_t bytes = major == 1 ? reader.read<uint16_t>() : reader.read<uint32_t>();
  if (bytes > limits::kNpyHeaderBytes) {
    fail(ErrorKind::kMalformed, "a header of ", bytes, " bytes; the limit is ",
         limits::kNpyHeaderBytes);
  }
  return HeaderParser(reader.text(bytes)).parse();
}

// Reads elements of type Source in C order, whatever order and byte order the data have.
template <typename Source>
class ElementReader {
 public:
  ElementReader(const std::byte* data, const NpyHeader& header)
      : data_(data), shape_(header.shape), swap_(header.descr[0] == '>') {
    int64_t stride = 1;
    for (int i = 0; i < shape_.rank(); ++i) {
      const int axis = header.fortran_order ? i : shape_.rank() - 1 - i;
      strides_[static_cast<size_t>(axis)] = stride;
      stride *= shape_[axis];
    }
  }

  Source next() {
    std::array<std::byte, sizeof(Source)> bytes;
    std::memcpy(bytes.data(), data_ + position_ * static_cast<int64_t>(sizeof(Source)),
                sizeof(Source));
    if (swap_) std::reverse(bytes.begin(), bytes.end());
    advance();
    return std::bit_cast<Source>(bytes);
  }

 private:
  void advance() {
    for (int axis = shape_.rank() - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      position_ += strides_[a];
      if (++index_[a] < shape_[axis]) return;
      position_ -= strides_[a] * shape_[axis];
      index_[a] = 0;
    }
  }

  const std::byte* data_;
  const Shape& shape_;
  bool swap_;
  std::array<int64_t, Shape::kMaxRank> strides_{}, index_{};
  int64_t position_ = 0;
};

template <typename Source, typename Target>
Array convert(const std::byte* data, const NpyHeader& header) {
  Array array = Array::zeros(DTypeOf<Target>::value, header.shape);
  ElementReader<Source> reader(data, header);
  for (Target& value : array.as_mutable<Target>()) {
    const Source source = reader.next();
    if constexpr (std::is_same_v<Source, uint64_t>) {
      if (source > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail(ErrorKind::kUnsupported, "the number ", source, " does not fit the type i64");
      }
      value = static_cast<int64_t>(source);
    } else if constexpr (std::is_same_v<Target, bool>) {
      value = source != 0;
    } else {
      value = static_cast<Target>(source);
    }
  }
  return array;
}

// What .npy calls a type, and how it becomes one of ours.
struct NpyType {
  std::string_view name;  // without the byte order
  size_t bytes;
  Array (*read)(const std::byte* data, const NpyHeader& header);
};
constexpr NpyType kNpyTypes[] = {
    {"f2", 2, convert<f16, f16>},          {"f4", 4, convert<float, float>},
    {"f8", 8, convert<double, double>},    {"i1", 1, convert<int8_t, int8_t>},
    {"i2", 2, convert<int16_t, int32_t>},  {"i4", 4, convert<int32_t, int32_t>},
    {"i8", 8, convert<int64_t, int64_t>},  {"u1", 1, convert<uint8_t, uint8_t>},
    {"u2", 2, convert<uint16_t, int32_t>}, {"u4", 4, convert<uint32_t, int64_t>},
    {"u8", 8, convert<uint64_t, int64_t>}, {"b1", 1, convert<uint8_t, bool>},
};

const NpyType& find_type(const std::string& descr) {
  const bool has_order =
      !descr.empty() && std::string_view("<>=|").find(descr[0]) != std::string::npos;
  for (const NpyType& type : kNpyTypes) {
    if (has_order && descr.substr(1) == type.name) return type;
  }
  if (descr.find('O') != std::string::npos) {
    fail(ErrorKind::kUnsupported,
         "an array of Python objects, which is a pickle; Lumen never executes pickles");
  }
  fail(ErrorKind::kUnsupported, "the type ", quoted(descr),
       " is not supported; expected floats, integers or bool");
}

Array parse_npy(std::span<const std::byte> bytes) {
  if (const std::string hint = content_hint(bytes); !hint.empty()) {
    fail(ErrorKind::kUnsupported, "not a .npy file: ", hint);
  }
  ByteReader reader(bytes);
  const NpyHeader header = read_npy_header(reader);
  const NpyType& type = find_type(header.descr);
  Checked span = type.bytes;  // with empty axes as 1, so that no stride can overflow
  for (const int64_t extent : header.shape)
    span = span * static_cast<uint64_t>(std::max<int64_t>(extent, 1));
  narrow<int64_t>(span.value());
  const Checked size = type.bytes * static_cast<uint64_t>(header.shape.elements());
  if (size != reader.remaining()) {
    fail(ErrorKind::kMalformed, "shape ", to_string(header.shape), " of type ",
         quoted(header.descr), " needs ", size.value(), " bytes of data; the file has ",
         reader.remaining());
  }
  return type.read(bytes.data() + reader.offset(), header);
}

std::string npy_descr(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "<f2";
    case DType::kF32:
      return "<f4";
    case DType::kF64:
      return "<f8";
    case DType::kI8:
      return "|i1";
    case DType::kU8:
      return "|u1";
    case DType::kI32:
      return "<i4";
    case DType::kI64:
      return "<i8";
    case DType::kBool:
      return "|b1";
    default:
      fail(ErrorKind::kUnsupported, "the .npy format has no type ", name(dtype));
  }
}

}  // namespace

void write_npy(const std::string& path, const Array& array) {
  std::string shape;  // "()", "(3,)", "(3, 4)"
  for (const int64_t extent : array.shape()) shape += str(shape.empty() ? "" : ", ", extent);
  if (array.shape().rank() == 1) shape += ',';
  std::string header = str("{'descr': '", npy_descr(array.dtype()),
                           "', 'fortran_order': False, 'shape': (", shape, "), }");
  // Spaces and a newline make the data begin at a multiple of 64.
  const size_t unpadded = kNpyMagic.size() + 4 + header.size() + 1;
  header.append((64 - unpadded % 64) % 64, ' ');
  header += '\n';
  AtomicFile file(path);
  file.write(kNpyMagic);
  const char version_and_length[] = {1, 0, static_cast<char>(header.size() & 0xFF),
                                     static_cast<char>(header.size() >> 8)};
  file.write(std::string_view(version_and_length, 4));
  file.write(header);
  file.write(std::span(array.data(), array.bytes()));
  file.commit();
}

Array parse_npy(std::span<const std::byte> bytes, const std::string& path) {
  return with_context(place_of(path), [&] { return parse_npy(bytes); });
}

Array read_npy(const std::string& path) {
  const auto buffer = map_file(path);
  return parse_npy({buffer->data, buffer->bytes}, path);
}

}  // namespace lumen::io
