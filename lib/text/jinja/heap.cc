#include "lib/text/jinja/heap.h"

#include <algorithm>

namespace lumen::text::jinja {

Object::Object(Heap& heap, size_t bytes)
    : heap_(&heap), charged_(bytes + kAllocationOverhead), stage_(heap.stage_) {
  heap.charge(charged_);
  heap.link(this);
}

Object::~Object() {
  heap_->unlink(this);
  heap_->discharge(charged_);
}

void Object::before_change() const {
  if (stage_ == heap_->stage_) return;
  if (heap_->on_trial_) throw TrialFailure();
  heap_->changed_ = true;
}

void Object::release() {
  if (--references_ == 0) heap_->bury(this);
}

Heap::~Heap() {
  // Pin everything and cut all references; then no order of destruction is unsafe.
  for (Object* object = objects_; object; object = object->next_) object->retain();
  for (Object* object = objects_; object; object = object->next_) object->forget();
  while (objects_) {
    Object* object = objects_;
    unlink(object);
    object->previous_ = object->next_ = nullptr;
    delete object;
  }
  current_ = outer_;
}

thread_local Heap* Heap::current_ = nullptr;

void Heap::charge(size_t bytes) {
  check(bytes);
  live_bytes_ += bytes;
}

void Heap::check(size_t bytes) const {
  if (bytes > limits::kTemplateHeapBytes || live_bytes_ + bytes > limits::kTemplateHeapBytes) {
    refuse("the template's values exceed ", limits::kTemplateHeapBytes, " bytes of memory");
  }
}

void Heap::too_many_steps() const {
  refuse("the template exceeded ", limits::kTemplateSteps, " steps");
}

void Heap::link(Object* object) {
  object->next_ = objects_;
  if (objects_) objects_->previous_ = object;
  objects_ = object;
}

void Heap::unlink(Object* object) {
  if (object->previous_) object->previous_->next_ = object->next_;
  if (object->next_) object->next_->previous_ = object->previous_;
  if (objects_ == object) objects_ = object->next_;
}

void Heap::bury(Object* object) {
  // A dead object leaves the list of the living; its link then chains the dead, and destroying
  // one only adds to the chain, so the native stack does not grow with the depth of a value.
  unlink(object);
  object->previous_ = nullptr;
  object->next_ = dead_;
  dead_ = object;
  if (burying_) return;
  burying_ = true;
  while (dead_) {
    Object* next = dead_;
    dead_ = next->next_;
    next->next_ = nullptr;
    delete next;
  }
  burying_ = false;
}

void TextBuilder::reserve(size_t more) {
  heap_.touch(more);
  const size_t needed = text_.size() + more;
  if (needed <= charged_) return;
  const size_t capacity = std::max(needed, 2 * charged_);
  heap_.charge(capacity);
  text_.reserve(capacity);
  heap_.discharge(charged_);
  charged_ = capacity;
}

std::string TextBuilder::take() {
  heap_.discharge(charged_);
  charged_ = 0;
  return std::exchange(text_, {});
}

}  // namespace lumen::text::jinja
