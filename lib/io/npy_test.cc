#include "lib/io/npy.h"

#include <numeric>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {
namespace {

std::string npy(const std::string& header, const std::string& data, char version = 1) {
  std::string file = std::string("\x93NUMPY") + version + '\0';
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  if (version > 1) file += std::string(2, '\0');
  return file + header + data;
}

Array read_array(const std::string& file) {
  return parse_npy(std::as_bytes(std::span(file)), "t.npy");
}

TEST_CASE("the shared .npy files are read or refused as said") {
  LUMEN_SHARED_DATA(directory, "formats/npy-generated");
  for (const Json& one : read_json(directory + "/cases.json")) {
    const std::string name = get_string(one, "file");
    CAPTURE(name);
    // u8.npy has a number beyond i64, the widest integer type.
    const bool refusable = name == "u8.npy" || name == "c8.npy" || name.ends_with(".npz");
    try {
      read_npy(directory + "/" + name);
      CHECK_FALSE(refusable);
    } catch (const Error& error) {
      CAPTURE(error.what());
      CHECK(refusable);
      CHECK(error.kind() == ErrorKind::kUnsupported);
    }
  }
  const Array fortran = read_npy(directory + "/fortran.npy");
  const Array swapped = read_npy(directory + "/big_endian_f4.npy");
  CHECK(swapped.elements() == 24);
  for (int i = 0; i < 24; ++i) {
    if (fortran.dtype() == DType::kF64) CHECK(fortran.as<double>()[i] == i);
    if (fortran.dtype() == DType::kF32) CHECK(fortran.as<float>()[i] == static_cast<float>(i));
    CHECK(swapped.as<float>()[i] == static_cast<float>(i));
  }
  CHECK(read_npy(directory + "/scalar.npy").shape().rank() == 0);
  CHECK(read_npy(directory + "/zero.npy").elements() == 0);
}

TEST_CASE("the shared bad .npy files are refused") {
  LUMEN_SHARED_DATA(directory, "formats/bad-npy");
  for (const Json& one : read_json(directory + "/cases.json")) {
    CAPTURE(get_string(one, "file"));
    CHECK_THROWS_AS(read_npy(directory + "/" + get_string(one, "file")), Error);
  }
  LUMEN_SHARED_DATA(objects, "formats/npy/numpy-py3-objarr.npy");
  CHECK_THROWS_AS(read_npy(objects), Error);
}

TEST_CASE("hostile .npy headers") {
  const std::string f4 = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  CHECK(read_array(npy(f4 + "(2,), }", "12345678")).elements() == 2);
  CHECK(read_array(npy(f4 + "(2L,), }", "12345678", 2)).elements() == 2);
  CHECK(read_array(npy("{\"shape\": (), \"fortran_order\": True, \"descr\": \"<i4\"}", "1234"))
            .elements() == 1);
  for (const std::string& file :
       {npy(f4 + "(2,), }", "1234567"),
        npy(f4 + "(2,), }", "123456789"),
        npy(f4 + "(-2,), }", ""),
        npy(f4 + "(4611686018427387904, 4, 0), }", ""),
        npy(f4 + "(0, 9223372036854775807, 4), }", ""),
        npy(f4 + "(18446744073709551616,), }", ""),
        npy(f4 + "(1,1,1,1,1,1,1,1,1), }", "1234"),
        npy(f4 + "(2,), 'x': 1}", "12345678"),
        npy(f4 + "(2,), } x", "12345678"),
        npy(f4 + "(2,)", "12345678"),
        npy("{'descr': '<f4', 'fortran_order': False}", ""),
        npy(f4 + "2}", "12345678"),
        npy("{'descr': '<f4'}", ""),
        npy("", ""),
        npy("{}", ""),
        npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (0,)}", ""),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "12345678"),
        npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234"),
        npy("{'descr': 'f4', 'fortran_order': False, 'shape': (1,)}", "1234"),
        npy("{'descr': '', 'fortran_order': False, 'shape': (1,)}", "1234"),
        npy("{'descr': '<u8', 'fortran_order': False, 'shape': (1,)}", std::string(8, '\xff')),
        npy(f4 + "(2,), }" + std::string(20'000, ' '), "12345678", 2),
        npy(f4 + "(2,), }", "", 4)}) {
    CAPTURE(file.substr(0, 120));
    CHECK_THROWS_AS(read_array(file), Error);
  }
}

TEST_CASE("what is written is read back, and laid out as NumPy does") {
  const std::string path = testing::temporary_directory() + "/a.npy";
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.5f);
  for (const Shape& shape : {Shape{24}, Shape{2, 3, 4}, Shape{24, 1}}) {
    write_npy(path, Array::from<float>(values, shape));
    const Array back = read_npy(path);
    CHECK(back.shape() == shape);
    CHECK(std::equal(values.begin(), values.end(), back.as<float>().begin()));
    CHECK((read_file(path, 1000).size() - 96) % 64 == 0);
  }
  write_npy(path, Array::zeros(DType::kI64, {}));
  CHECK(read_npy(path).dtype() == DType::kI64);
  CHECK(read_file(path, 1000).find("'shape': (), }") != std::string::npos);
  write_npy(path, Array::zeros(DType::kBool, {3}));
  CHECK(read_npy(path).dtype() == DType::kBool);
  CHECK(read_file(path, 1000).find("'shape': (3,), }") != std::string::npos);
  CHECK_THROWS_AS(write_npy(path, Array::zeros(DType::kBF16, {3})), Error);
}

}  // namespace
}  // namespace lumen::io
