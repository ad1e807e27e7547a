#include "lib/text/sentencepiece_model.h"

#include <cmath>
#include <cstring>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/text/charsmap.h"

namespace lumen::text {
namespace {

// Wire types of protobuf.
constexpr uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

struct Field {
  uint32_t number = 0, wire_type = 0;
  uint64_t value = 0;      // of a varint or fixed field
  std::string_view bytes;  // of a length-delimited field
  std::string_view whole;  // tag and payload
};

// Walks over the fields of one message; nested messages are the caller's to walk.
class Fields {
 public:
  Fields(std::string_view message, std::string_view name) : message_(message), name_(name) {}

  bool next(Field& field) {
    if (pos_ == message_.size()) return false;
    const size_t begin = pos_;
    const uint64_t tag = varint();
    if (tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) malformed("a field number out of range");
    field = {};
    field.number = static_cast<uint32_t>(tag >> 3);
    field.wire_type = static_cast<uint32_t>(tag & 7);
    if (field.wire_type == kVarint) {
      field.value = varint();
    } else if (field.wire_type == kFixed64) {
      std::memcpy(&field.value, take(8).data(), 8);
    } else if (field.wire_type == kFixed32) {
      std::memcpy(&field.value, take(4).data(), 4);
    } else if (field.wire_type == kBytes) {
      field.bytes = take(varint());
    } else {
      malformed(str("wire type ", field.wire_type));
    }
    field.whole = message_.substr(begin, pos_ - begin);
    return true;
  }

  [[noreturn]] void malformed(const std::string& what) const {
    fail(ErrorKind::kMalformed, name_, ", byte ", pos_, ": ", what,
         " (not a sentencepiece model, or a damaged one)");
  }

  // The payload of a field that must have this wire type.
  const Field& expect(const Field& field, uint32_t wire_type) const {
    if (field.wire_type != wire_type) {
      malformed(str("field ", field.number, " has wire type ", field.wire_type, ", expected ",
                    wire_type));
    }
    return field;
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      if (shift == 63 && byte > 1) break;
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    malformed("a number longer than 64 bits");
  }
  std::string_view take(uint64_t count) {
    if (count > message_.size() - pos_) {
      malformed(str(count, " bytes needed but only ", message_.size() - pos_, " remain"));
    }
    pos_ += count;
    return message_.substr(pos_ - count, count);
  }

  std::string_view message_;
  std::string_view name_;
  size_t pos_ = 0;
};

void check_piece(std::string_view message, SentencepieceModel& model) {
  const std::string name = str("piece ", model.pieces.size());
  Fields fields(message, name);
  SentencepieceModel::Piece piece;
  for (Field field; fields.next(field);) {
    if (field.number == 1) {
      piece.text = fields.expect(field, kBytes).bytes;
    } else if (field.number == 2) {
      const auto bits = static_cast<uint32_t>(fields.expect(field, kFixed32).value);
      std::memcpy(&piece.score, &bits, sizeof piece.score);
      if (!std::isfinite(piece.score)) fields.malformed(str("its score is ", piece.score));
    } else if (field.number == 3) {
      const uint64_t type = fields.expect(field, kVarint).value;
      if (type < 1 || type > 6) fields.malformed(str("its type is ", type, ", expected 1 to 6"));
      piece.type = static_cast<PieceType>(type);
    }
  }
  if (piece.text.empty() || piece.text.size() > limits::kPieceBytes) {
    fields.malformed(
        str("it is ", piece.text.size(), " bytes long, expected 1 to ", limits::kPieceBytes));
  }
  if (!is_valid_utf8(piece.text)) fields.malformed("it is not UTF-8");
  if (model.pieces.size() == limits::kVocab) {
    fields.malformed(str("more than ", limits::kVocab, " pieces"));
  }
  model.pieces.push_back(piece);
}

void check_trainer(std::string_view message, SentencepieceModel& model) {
  Fields fields(message, "trainer_spec");
  for (Field field; fields.next(field);) {
    if (field.number == 3) {
      const uint64_t type = fields.expect(field, kVarint).value;
      if (type < 1 || type > 4) fields.malformed(str("model type ", type, ", expected 1 to 4"));
      model.kind = static_cast<PieceModel>(type);
    }
    if (field.number == 44) {
      model.unk_surface = fields.expect(field, kBytes).bytes;
      if (model.unk_surface.size() > limits::kPieceBytes) {
        fields.malformed("the surface of the unknown token is too long");
      }
      if (!is_valid_utf8(model.unk_surface)) {
        fields.malformed("the surface of the unknown token is not UTF-8");
      }
    }
    if (field.number == 35) model.byte_fallback = fields.expect(field, kVarint).value != 0;
    if (field.number >= 40 && field.number <= 43) fields.expect(field, kVarint);  // unk to pad id
  }
}

// Whether the message has a character map that is not empty.
bool check_normalizer(std::string_view message, std::string_view name, SentencepieceModel* model) {
  Fields fields(message, name);
  bool has_map = false;
  for (Field field; fields.next(field);) {
    if (field.number == 2) {
      const std::string_view blob = fields.expect(field, kBytes).bytes;
      with_context(std::string(name), [&] { Charsmap{blob}; });
      has_map = !blob.empty();
      if (model != nullptr) model->charsmap = blob;
    } else if (field.number >= 3 && field.number <= 5) {
      const bool value = fields.expect(field, kVarint).value != 0;
      if (model != nullptr && field.number == 3) model->add_dummy_prefix = value;
      if (model != nullptr && field.number == 4) model->remove_extra_whitespaces = value;
    } else if (field.number == 1 || field.number == 6) {
      fields.expect(field, kBytes);
    }
  }
  return has_map;
}

}  // namespace

SentencepieceModel check_sentencepiece(std::string_view bytes) {
  SentencepieceModel model;
  Fields fields(bytes, "model");
  model.trimmed.reserve(bytes.size());
  for (Field field; fields.next(field);) {
    if (field.number < 1 || field.number > 5) continue;  // extensions
    fields.expect(field, kBytes);
    if (field.number == 1) check_piece(field.bytes, model);
    if (field.number == 2) check_trainer(field.bytes, model);
    if (field.number == 3) check_normalizer(field.bytes, "normalizer_spec", &model);
    if (field.number == 5) {
      model.has_denormalizer = check_normalizer(field.bytes, "denormalizer_spec", nullptr);
    }
    if (field.number != 4) model.trimmed += field.whole;  // all but the samples for a self-test
  }
  if (model.pieces.empty()) fields.malformed("it has no pieces");
  return model;
}

}  // namespace lumen::text
