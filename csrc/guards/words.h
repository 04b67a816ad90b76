// The words of memory that stay as they are while a test holds.
#pragma once
#include "tests.h"

namespace {

uint64_t as_word(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

const uint64_t* word_at(const void* object, Py_ssize_t offset) {
  return reinterpret_cast<const uint64_t*>(reinterpret_cast<const char*>(object) + offset);
}

const uint64_t* class_of(PyObject* object) { return word_at(object, offsetof(PyObject, ob_type)); }

// Append the words that have their present values exactly while the test holds. Return false if there are none.
bool append_words(const Checker& checker, const Test& test, std::vector<Word>& words) {
  PyObject* expected = test.expected;
  const auto append = [&](const uint64_t* address) { words.push_back({address, *address}); };
  switch (test.operation) {
    case kEntries:
    case kPicture:
      if (!checker.dict_versions) return false;
      words.push_back({&reinterpret_cast<Dict*>(test.owner)->version, test.version});
      return true;
    case kType: words.push_back({class_of(test.owner), as_word(expected)}); return true;
    case kCell:
      words.push_back({word_at(test.owner, offsetof(Cell, value)), as_word(expected == checker.missing ? nullptr : expected)});
      return true;
    case kClass:  // the other half of the word is padding
      if (test.version == 0 || type_version(test.owner) != test.version) return false;
      append(word_at(test.owner, kTypeVersion));
      return true;
    case kFunction:
      if (checker.code < 0 || !function_holds(checker, test)) return false;
      for (int part = 0; part < 3; ++part) append(word_at(test.owner, checker.code + part * Py_ssize_t{sizeof(uint64_t)}));
      return true;
    case kObject: {
      if (!object_holds(checker, test)) return false;
      if (PyTuple_GetItem(expected, 0) != checker.missing) append(class_of(test.owner));
      if (PyTuple_GetItem(expected, 1) != checker.missing) append(word_at(_PyObject_GetDictPtr(test.owner), 0));
      return true;
    }
    default: return false;
  }
}

void lay_out_words(Checker& checker) {
  checker.words.clear();
  checker.test_of_word.clear();
  checker.others.clear();
  for (size_t index = 0; index < checker.tests.size(); ++index) {
    if (!append_words(checker, checker.tests[index], checker.words)) checker.others.push_back(index);
    checker.test_of_word.resize(checker.words.size(), index);
  }
}

// Look closer at the test of a word that differs. A dict that changed at other keys has another version.
int look_closer(Checker& checker, size_t position) {
  Test& test = checker.tests[checker.test_of_word[position]];
  const int result = holds(checker, test);
  if (result == 1) checker.words[position].expected = *checker.words[position].address;
  return result;
}

// 1 if all tests hold, 0 if one does not, -1 with an error set.
int all_hold(Checker& checker) {
  for (size_t position = 0; position < checker.words.size(); ++position) {
    const Word& word = checker.words[position];
    if (*word.address != word.expected) {
      const int result = look_closer(checker, position);
      if (result != 1) return result;
    }
  }
  for (size_t position = 0; position < checker.others.size(); ++position) {  // a call may change the tests
    const int result = holds(checker, checker.tests[checker.others[position]]);
    if (result != 1) return result;
  }
  return 1;
}

}  // namespace
