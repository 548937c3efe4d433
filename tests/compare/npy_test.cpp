#include <gtest/gtest.h>

#include <cstring>

#include "compare/array_files.h"
#include "compare/base64.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

std::string message_of(const std::string& bytes) {
  try {
    decode_npy(bytes, "here");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// A version 1.0 file with that header.
std::string file(std::string header, const std::string& data = "") {
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header + data;
}

TEST(Npy, GoesBothWaysForEveryType) {
  for (DataType type :
       {DataType::kFloat16, DataType::kFloat32, DataType::kFloat64, DataType::kInt8, DataType::kUInt8, DataType::kInt16,
        DataType::kUInt16, DataType::kInt32, DataType::kUInt32, DataType::kInt64, DataType::kUInt64, DataType::kBool}) {
    const Tensor tensor = Tensor::of<float>({2, 3}, {0, 1, 1, 0, 1, 0}).cast(type);
    const Tensor copy = decode_npy(encode_npy(tensor), "here");
    ASSERT_EQ(copy.type(), type);
    ASSERT_EQ(copy.shape(), tensor.shape());
    EXPECT_EQ(std::memcmp(copy.raw(), tensor.raw(), tensor.bytes()), 0) << name_of(type);
  }
}

TEST(Npy, KeepsScalarsAndEmptyArrays) {
  EXPECT_EQ(decode_npy(encode_npy(Tensor::scalar<float>(2.5f)), "here").shape(), Shape{});
  EXPECT_EQ(decode_npy(encode_npy(Tensor(DataType::kInt8, {0, 7})), "here").shape(), (Shape{0, 7}));
}

TEST(Npy, HeaderIsAligned) { EXPECT_EQ((encode_npy(Tensor::of<float>({1}, {1})).size() - 4) % 64, 0u); }

TEST(Npy, ReadsFortranOrder) {
  const Tensor tensor = decode_npy(
      file("{'descr': '|i1', 'fortran_order': True, 'shape': (2, 3), }\n", std::string("\0\3\1\4\2\5", 6)), "here");
  for (std::int8_t i = 0; i < 6; ++i) EXPECT_EQ(tensor.data<std::int8_t>()[i], i);
}

TEST(Npy, ReadsBigEndianAndPython2) {
  const Tensor tensor = decode_npy(
      file("{'shape': (2L,), 'fortran_order': False, 'descr': '>i2'}\n", std::string("\1\2\0\3", 4)), "here");
  EXPECT_EQ(tensor.data<std::int16_t>()[0], 0x102);
  EXPECT_EQ(tensor.data<std::int16_t>()[1], 3);
}

TEST(Npy, ExplainsWhatItRefuses) {
  const std::string good = encode_npy(Tensor::of<float>({4}, {1, 2, 3, 4}));
  EXPECT_NE(message_of("junk").find("here: expected an .npy file"), std::string::npos);
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_NE(message_of(good.substr(0, size)), "") << size;
  EXPECT_NE(message_of(good.substr(0, good.size() - 1)).find("truncated"), std::string::npos);
  EXPECT_NE(message_of(file("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }")).find("Python objects"),
            std::string::npos);
  EXPECT_NE(message_of(file("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }")).find("'<c8'"),
            std::string::npos);
  EXPECT_NE(message_of(file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }")).find("structures"),
            std::string::npos);
  EXPECT_NE(message_of(file("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }")).find("True or False"),
            std::string::npos);
  EXPECT_NE(message_of(file("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }")).find("dimension"),
            std::string::npos);
  EXPECT_NE(message_of(file("{'descr': '<f4', 'shape': (1,), }")).find("lacks"), std::string::npos);
  // A shape of 2^62 elements must not be allocated first.
  EXPECT_NE(message_of(file("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }"))
                .find("truncated"),
            std::string::npos);
}

TEST(Npy, NamesEmptyShapesBeyondCounting) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296)}\n";
  const std::string file = std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(header.size()) + '\0' + header;
  try {
    decode_npy(file, "[load] x.npy");
    ADD_FAILURE() << "it was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    EXPECT_NE(std::string(error.what()).find("[load] x.npy"), std::string::npos) << error.what();
  }
}

TEST(Npy, RefusesBfloat16WithAdvice) {
  try {
    encode_npy(Tensor(DataType::kBFloat16, {1}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("try float32"), std::string::npos);
  }
}

TEST(Npz, DamagedArchivesAreRefused) {
  // numpy.savez_compressed(file, first=numpy.zeros(2, numpy.int8)), in base64
  const std::string archive = *decode_base64(
      "UEsDBBQAAAAIAAAAIQCjde1RRgAAAIIAAAAJAAAAZmlyc3QubnB5m+wX6hsQychQxlCtnpJanFykbqWgXpNpqK6joJ6WX1RSlJgX"
      "n1+UkgoSd0vMKU4FihdnJBakAvkaRjqaOgq1ChQALgYGAFBLAQIUAxQAAAAIAAAAIQCjde1RRgAAAIIAAAAJAAAAAAAAAAAAAACA"
      "AQAAAABmaXJzdC5ucHlQSwUGAAAAAAEAAQA3AAAAbQAAAAAA");
  const Tensor tensor = decode_npy(archive, "here");
  EXPECT_EQ(tensor.type(), DataType::kInt8);
  EXPECT_EQ(tensor.shape(), Shape{2});
  for (std::size_t size = 2; size < archive.size(); ++size)
    EXPECT_THROW(decode_npy(archive.substr(0, size), "here"), Error) << size;
  for (std::size_t i = 0; i < archive.size(); ++i) {
    std::string damaged = archive;
    damaged[i] = static_cast<char>(damaged[i] ^ 0xff);
    try {
      decode_npy(damaged, "here");
    } catch (const Error&) {  // an answer or an Error, nothing else
    }
  }
}

TEST(Base64, GoesBothWays) {
  for (const auto& [plain, coded] : {std::pair<std::string, std::string>{"", ""},
                                     {"f", "Zg=="},
                                     {"fo", "Zm8="},
                                     {"foo", "Zm9v"},
                                     {"foob", "Zm9vYg=="},
                                     {"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(encode_base64(plain), coded);
    EXPECT_EQ(decode_base64(coded), plain);
  }
  for (const char* bad : {"Zg=", "Z", "Zm9v!mFy", "Zm9v\n", "=m9v", "Zg=a"}) EXPECT_FALSE(decode_base64(bad)) << bad;
}

}  // namespace
}  // namespace ulpscope
