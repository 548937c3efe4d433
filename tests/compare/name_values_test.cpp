#include "compare/name_values.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ulpscope/error.h"

namespace ulpscope {
namespace {

TEST(NameValues, SplitAtTheLastColon) {
  EXPECT_EQ(split_name("a:0:1e-3").name, "a:0");
  EXPECT_EQ(split_name("a:0:1e-3").text, "1e-3");
  EXPECT_EQ(split_name("1e-3").name, "");
}

TEST(NameValues, ValuesHaveTypes) {
  EXPECT_EQ(std::get<std::int64_t>(parse_value("5").items[0]), 5);
  EXPECT_EQ(std::get<double>(parse_value("1e-3").items[0]), 1e-3);
  EXPECT_EQ(std::get<double>(parse_value("-inf").items[0]), -INFINITY);
  EXPECT_EQ(std::get<std::string>(parse_value("'mean'").items[0]), "mean");
  const OptionValue list = parse_value("[1, 2.5,batch]");
  ASSERT_EQ(list.items.size(), 3u);
  EXPECT_TRUE(list.is_list);
  EXPECT_EQ(std::get<std::int64_t>(list.items[0]), 1);
  EXPECT_EQ(std::get<double>(list.items[1]), 2.5);
  EXPECT_EQ(std::get<std::string>(list.items[2]), "batch");
  EXPECT_TRUE(parse_value("[]").items.empty());
}

TEST(NameValues, TheEmptyNameIsTheDefault) {
  const auto tolerances = parse_numbers("--atol", {"1e-3", "y:0.5", "z:0:inf"});
  EXPECT_EQ(tolerances.get("other", 7), 1e-3);
  EXPECT_EQ(tolerances.get("y", 7), 0.5);
  EXPECT_EQ(tolerances.get("z:0", 7), INFINITY);
  EXPECT_EQ(parse_numbers("--atol", {"y:0.5"}).get("other", 7), 7);
}

TEST(NameValues, Ranges) {
  const auto ranges = parse_ranges("--val-range", {"x:[1,2]", "[-1, inf]"});
  EXPECT_EQ(ranges.find("x")->high, 2);
  EXPECT_EQ(ranges.find("y")->low, -1);
  EXPECT_EQ(ranges.find("y")->high, INFINITY);
}

TEST(NameValues, Shapes) {
  const auto shapes =
      parse_shapes("--input-shapes", {"a:0:[1,3,224,224]", "b:[]", "c:[batch,-1,2]", "old,name,1x3x5", "scalar,"});
  ASSERT_EQ(shapes.size(), 5u);
  EXPECT_EQ(shapes[0].first, "a:0");
  EXPECT_EQ(shapes[0].second, (Shape{1, 3, 224, 224}));
  EXPECT_EQ(shapes[1].second, Shape{});
  EXPECT_EQ(shapes[2].second, (Shape{-1, -1, 2}));
  EXPECT_EQ(shapes[3].first, "old,name");
  EXPECT_EQ(shapes[3].second, (Shape{1, 3, 5}));
  EXPECT_EQ(shapes[4].second, Shape{});
}

TEST(NameValues, TopK) {
  const auto top = parse_top_k("--postprocess", {"top-5", "out:top-3,axis=1"});
  EXPECT_EQ(top.find("x")->k, 5);
  EXPECT_EQ(top.find("x")->axis, -1);
  EXPECT_EQ(top.find("out")->k, 3);
  EXPECT_EQ(top.find("out")->axis, 1);
}

TEST(NameValues, MistakesAreExplained) {
  const auto message = [](auto parse) -> std::string {
    try {
      parse();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([] { parse_numbers("--atol", {"y:abc"}); }),
            "[options] --atol: expected a number, or NAME:NUMBER, got 'y:abc'; try --atol 1e-3, or --atol output:1e-3");
  EXPECT_NE(message([] { parse_numbers("--atol", {"y:"}); }), "");
  EXPECT_NE(message([] { parse_integers("--index-tolerance", {"1.5"}); }), "");
  EXPECT_NE(message([] { parse_ranges("--val-range", {"x:1"}); }), "");
  EXPECT_NE(message([] { parse_ranges("--val-range", {"x:[1,2,3]"}); }), "");
  EXPECT_NE(message([] { parse_ranges("--val-range", {"x:[2,1]"}); }).find("the lower bound first"), std::string::npos);
  EXPECT_NE(message([] { parse_shapes("--input-shapes", {"x"}); }), "");
  EXPECT_NE(message([] { parse_shapes("--input-shapes", {"[1,2]"}); }), "");
  EXPECT_NE(message([] { parse_shapes("--input-shapes", {"x:[1.5]"}); }), "");
  EXPECT_NE(message([] { parse_top_k("--postprocess", {"bottom-5"}); }), "");
  EXPECT_NE(message([] { parse_top_k("--postprocess", {"top-0"}); }), "");
  EXPECT_NE(message([] { parse_top_k("--postprocess", {"top-5,dim=1"}); }), "");
}

}  // namespace
}  // namespace ulpscope
