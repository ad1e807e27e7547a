#include "lib/text/jinja/value.h"

#include "lib/base/limits.h"
#include "lib/text/jinja/operators.h"
#include "lib/text/jinja/python_text.h"

namespace lumen::text::jinja {

Value Value::undefined(Heap& heap, std::string message) {
  Value value = text(heap, std::move(message));
  value.kind_ = Kind::kUndefined;
  return value;
}

Value Value::text(Heap& heap, std::string text) {
  return object(heap.make<String>(std::move(text)));
}

String::String(Heap& heap, std::string text, bool markup)
    : Object(heap, sizeof(String) + text.capacity()), text_(std::move(text)), markup_(markup) {}

int64_t String::length() const {
  if (length_ < 0) {
    heap().touch(text_.size());
    length_ = count_code_points(text_);
  }
  return length_;
}

Sequence::Sequence(Heap& heap, Flavour flavour, Values items)
    : Object(heap, sizeof(Sequence)), items_(std::move(items)), flavour_(flavour) {}

int64_t Sequence::size() const {
  if (horizon_ == nullptr || !horizon_->trial) return static_cast<int64_t>(items().size());
  return std::max<int64_t>(*horizon_->trial - skipped_, 0);
}

bool Sequence::empty() const {
  if (horizon_ == nullptr || horizon_->trial || items_.empty()) return size() == 0;
  horizon_->see(skipped_ + 1);
  return false;
}

const Value* Sequence::element(int64_t index) const {
  const bool inside = index >= 0 && index < static_cast<int64_t>(items_.size());
  if (horizon_ != nullptr && !horizon_->trial && inside) {
    horizon_->see(skipped_ + index + 1);
  } else {
    const int64_t length = size();
    if (index < 0) index += length;
    if (index < 0 || index >= length) return nullptr;
  }
  return &items_[static_cast<size_t>(index)];
}

Value Sequence::remove(size_t index) {
  before_change();
  heap().step(items_.size() / 16);
  Value removed = std::move(items_[index]);
  items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(index));
  return removed;
}

Dict::Dict(Heap& heap) : Object(heap, sizeof(Dict)) {}

void Dict::forget() {
  items_.clear();
  index_.clear();
}

int64_t Dict::position(const Value& key, size_t hash) const {
  if (index_.empty()) {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (equals(heap(), items_[i].first, key)) return static_cast<int64_t>(i);
    }
    return -1;
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto entry = begin; entry != end; ++entry) {
    heap().step();
    if (equals(heap(), items_[entry->second].first, key)) return entry->second;
  }
  return -1;
}

const Value* Dict::find(const Value& key) const {
  const int64_t found = position(key, hash_value(heap(), key));
  return found < 0 ? nullptr : &items_[static_cast<size_t>(found)].second;
}

const Value* Dict::find(std::string_view key) const {
  if (index_.empty()) {
    for (const Item& item : items_) {
      if (item.first.is_string() && item.first.view() == key) return &item.second;
    }
    return nullptr;
  }
  return find(Value::text(heap(), std::string(key)));
}

void Dict::set(const Value& key, Value value) {
  constexpr size_t kLinear = 8;
  const size_t hash = hash_value(heap(), key);
  const int64_t found = position(key, hash);
  if (found >= 0) {
    items_[static_cast<size_t>(found)].second = std::move(value);
    return;
  }
  items_.emplace_back(key, std::move(value));
  if (!index_.empty()) {
    index_.emplace(hash, items_.size() - 1);
  } else if (items_.size() > kLinear) {
    for (uint32_t i = 0; i < items_.size(); ++i) {
      index_.emplace(hash_value(heap(), items_[i].first), i);
    }
  }
}

Value make_list(Heap& heap, Values items) {
  return Value::object(heap.make<Sequence>(Sequence::Flavour::kList, std::move(items)));
}

Value make_tuple(Heap& heap, Values items) {
  return Value::object(heap.make<Sequence>(Sequence::Flavour::kTuple, std::move(items)));
}

Value make_generator(Heap& heap, Values items) {
  return Value::object(heap.make<Sequence>(Sequence::Flavour::kGenerator, std::move(items)));
}

Value make_markup(Heap& heap, std::string text) {
  return Value::object(heap.make<String>(std::move(text), true));
}

Value from_json(Heap& heap, const Json& json, int depth) {
  if (depth > limits::kTemplateDepth) {
    refuse("a variable is nested deeper than ", limits::kTemplateDepth, " levels");
  }
  heap.step();
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const uint64_t number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(INT64_MAX)) {
        refuse("the integer ", number, " of a variable does not fit 64 bits with sign");
      }
      return Value::integer(static_cast<int64_t>(number));
    }
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string: {
      const std::string& text = json.get_ref<const std::string&>();
      heap.check(text.size());
      heap.touch(text.size());
      return Value::text(heap, is_valid_utf8(text) ? text : to_valid_utf8(text));
    }
    case Json::value_t::array: {
      heap.check(json.size() * sizeof(Value));
      Values items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(heap, item, depth + 1));
      return make_list(heap, std::move(items));
    }
    case Json::value_t::object: {
      const Ref<Dict> dict = heap.make<Dict>();
      for (const auto& [key, item] : json.items()) {
        dict->set(Value::text(heap, to_valid_utf8(key)), from_json(heap, item, depth + 1));
      }
      return Value::object(dict);
    }
    default:
      return Value::none();
  }
}

Value parse_json(Heap& heap, std::string_view text) {
  int depth = 0;
  const auto limit_depth = [&](int, Json::parse_event_t event, const Json&) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) ++depth;
    if (event == Event::object_end || event == Event::array_end) --depth;
    if (depth > limits::kTemplateDepth) {
      refuse("JSON text is nested deeper than ", limits::kTemplateDepth, " levels");
    }
    return true;
  };
  const Json json = Json::parse(text, limit_depth, /*allow_exceptions=*/false);
  if (json.is_discarded()) refuse("malformed JSON text ", lumen::quoted(text));
  return from_json(heap, json);
}

}  // namespace lumen::text::jinja
