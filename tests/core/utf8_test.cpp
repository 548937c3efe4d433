#include "core/utf8.h"

#include <gtest/gtest.h>

namespace ulpscope {
namespace {

TEST(Utf8, KeepsWhatIsUtf8) {
  for (const char* text :
       {"", "abc", "\xc2\x80", "\xc3\xa4\xe4\xb8\xad\xf0\x9f\x98\x80", "\xef\xbf\xbd", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(as_utf8(text), text);
  EXPECT_EQ(as_utf8(std::string_view("a\0b", 3)), std::string("a\0b", 3));
}

TEST(Utf8, ReplacesEachByteThatIsNone) {
  const std::string sign = "\xef\xbf\xbd";
  EXPECT_EQ(as_utf8("f\xa4rst"), "f" + sign + "rst");
  EXPECT_EQ(as_utf8("\xc3"), sign);                                   // Cut off.
  EXPECT_EQ(as_utf8("\xe4\xb8x"), sign + sign + "x");                 // Cut off in between.
  EXPECT_EQ(as_utf8("\xc0\x80"), sign + sign);                        // Overlong.
  EXPECT_EQ(as_utf8("\xed\xa0\x80"), sign + sign + sign);             // Half of a surrogate pair.
  EXPECT_EQ(as_utf8("\xf4\x90\x80\x80"), sign + sign + sign + sign);  // Beyond the last character.
  EXPECT_EQ(as_utf8("\xff\xc3\xa4"), sign + "\xc3\xa4");
}

}  // namespace
}  // namespace ulpscope
