#include "backend/cuda/matrix_product.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "backend/cuda/cublas_lt_api.h"
#include "core/messages.h"

namespace ulpscope::cuda {

namespace {

using namespace lt;

const CublasLt& cublas() {
  static const CublasLt functions;
  return functions;
}

void check_cublas(int status, const char* what) {
  if (status != 0) throw unsupported("[run] backend 'cuda': cuBLASLt could not {} (status {})", what, status);
}

ElementType element_type(DataType type) {
  using T = DataType;
  constexpr std::pair<T, ElementType> kTypes[] = {
      {T::kFloat32, kReal32F}, {T::kFloat64, kReal64F},   {T::kFloat16, kReal16F},       {T::kInt8, kReal8I},
      {T::kInt32, kReal32I},   {T::kBFloat16, kReal16BF}, {T::kFloat8E4M3, kReal8FE4M3},
  };
  for (const auto& [known, made] : kTypes)
    if (known == type) return made;
  throw InternalError(fmt::format("no product of matrices of {}", name_of(type)));
}

/// The four descriptors of one product. Row-major matrices are column-major transposed ones: what is computed is
/// d' = b' a'.
class Descriptors {
 public:
  explicit Descriptors(const MatrixProductSpec& spec) : spec_(spec) {
    const bool integers = spec.operands == DataType::kInt8, doubles = spec.operands == DataType::kFloat64;
    const int compute = integers ? kCompute32I : doubles ? kCompute64F : spec.tf32 ? kComputeTF32 : kCompute32F;
    const DataType scale = integers ? DataType::kInt32 : doubles ? DataType::kFloat64 : DataType::kFloat32;
    check_cublas(cublas().descriptor_create(&descriptor, compute, element_type(scale)), "describe a product");
    const bool b_by_columns = is_by_columns(spec.b, spec.n), a_by_columns = is_by_columns(spec.a, spec.k);
    set(kTransA, b_by_columns ? 1 : 0);
    set(kTransB, a_by_columns ? 1 : 0);
    set(kEpilogue, spec.bias || spec.relu ? (spec.relu ? kEpilogueRelu : 0u) | (spec.bias ? kEpilogueBias : 0u)
                                          : static_cast<std::uint32_t>(kEpilogueNone));
    if (spec.operands == DataType::kFloat8E4M3) set(kFastAccumulation, static_cast<std::int8_t>(spec.fast));
    a = layout(spec.operands, spec.b, spec.n, spec.k, b_by_columns);
    b = layout(spec.operands, spec.a, spec.k, spec.m, a_by_columns);
    d = layout(spec.result, spec.d, spec.n, spec.m, false);
  }
  ~Descriptors() {
    for (MatrixLayout each : {a, b, d})
      if (each != nullptr) cublas().layout_destroy(each);
    if (descriptor != nullptr) cublas().descriptor_destroy(descriptor);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  template <typename Value>
  void set(int attribute, Value value) {
    check_cublas(cublas().descriptor_set(descriptor, attribute, &value, sizeof value), "describe a product");
  }

  Descriptor descriptor = nullptr;
  MatrixLayout a = nullptr, b = nullptr, d = nullptr;

 private:
  /// Its columns are contiguous, not its rows of `columns` elements.
  static bool is_by_columns(const MatrixOperand& matrix, std::int64_t columns) {
    return matrix.column_stride != 1 && columns > 1;
  }

  MatrixLayout layout(DataType type, const MatrixOperand& matrix, std::int64_t columns, std::int64_t rows,
                      bool by_columns) const {
    MatrixLayout made = nullptr;
    const std::int64_t first = by_columns ? rows : columns, second = by_columns ? columns : rows;
    const std::int64_t stride = by_columns ? matrix.column_stride : matrix.row_stride;
    // Of a single row the stride does not matter, but has to be one that could be.
    const std::int64_t leading = second == 1 ? std::max<std::int64_t>(first, stride) : stride;
    check_cublas(cublas().layout_create(&made, element_type(type), static_cast<std::uint64_t>(first),
                                        static_cast<std::uint64_t>(second), leading),
                 "describe a matrix");
    if (spec_.batch > 1) {
      const auto count = static_cast<std::int32_t>(spec_.batch);
      check_cublas(cublas().layout_set(made, kBatchCount, &count, sizeof count), "describe matrices");
      check_cublas(cublas().layout_set(made, kBatchStride, &matrix.batch_stride, sizeof matrix.batch_stride),
                   "describe matrices");
    }
    return made;
  }

  const MatrixProductSpec& spec_;
};

std::string to_hex(const Algorithm& algorithm) {
  std::string text;
  unsigned char bytes[sizeof algorithm];
  std::memcpy(bytes, &algorithm, sizeof bytes);
  for (unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

bool from_hex(const std::string& text, Algorithm& algorithm) {
  if (text.size() != 2 * sizeof algorithm || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    return false;
  unsigned char bytes[sizeof algorithm];
  for (std::size_t i = 0; i < sizeof bytes; ++i)
    bytes[i] = static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  std::memcpy(&algorithm, bytes, sizeof bytes);
  return true;
}

const void* pointer(Address address) { return reinterpret_cast<const void*>(address); }

class LtProduct final : public MatrixLibrary::Product {
 public:
  LtProduct(Handle handle, const MatrixProductSpec& spec, const HeuristicResult& found)
      : handle_(handle), spec_(spec), descriptors_(spec_), found_(found) {}

  std::size_t workspace_bytes() const override { return found_.workspace; }
  std::string tactic() const override { return to_hex(found_.algorithm); }

  void run(const MatrixProductOperands& operands, Address workspace, Stream stream) const override {
    static constexpr float kOne = 1, kZero = 0;
    static constexpr double kOneDouble = 1, kZeroDouble = 0;
    static constexpr std::int32_t kOneInteger = 1, kZeroInteger = 0;
    const void *one = &kOne, *zero = &kZero;
    if (spec_.operands == DataType::kFloat8E4M3) one = &operands.factor;
    if (spec_.operands == DataType::kInt8) one = &kOneInteger, zero = &kZeroInteger;
    if (spec_.operands == DataType::kFloat64) one = &kOneDouble, zero = &kZeroDouble;
    if (spec_.bias) descriptors_.set(kBiasPointer, operands.bias);
    check_cublas(cublas().matmul(handle_, descriptors_.descriptor, one, pointer(operands.b), descriptors_.a,
                                 pointer(operands.a), descriptors_.b, spec_.residual ? one : zero,
                                 pointer(spec_.residual ? operands.residual : operands.d), descriptors_.d,
                                 const_cast<void*>(pointer(operands.d)), descriptors_.d, &found_.algorithm,
                                 const_cast<void*>(pointer(workspace)), found_.workspace, stream),
                 "multiply matrices");
  }

 private:
  const Handle handle_;
  const MatrixProductSpec spec_;
  mutable Descriptors descriptors_;  ///< The address of the bias is one of its attributes.
  const HeuristicResult found_;
};

}  // namespace

std::string MatrixProductSpec::text() const {
  // Every product of every plan is looked for by this.
  return fmt::format(
      FMT_COMPILE("product {}x{}x{} batch {} {}{}{}->{} a {},{},{} b {},{},{} d {},{},{}{}{}{} aligned {}"), m, n, k,
      batch, name_of(operands), tf32 ? " tf32" : "", fast ? " fast" : "", name_of(result), a.row_stride,
      a.column_stride, a.batch_stride, b.row_stride, b.column_stride, b.batch_stride, d.row_stride, d.column_stride,
      d.batch_stride, bias ? " bias" : "", residual ? " residual" : "", relu ? " relu" : "", alignment);
}

bool adds_bias_before_rounding(const MatrixProductSpec& spec) {
  constexpr std::int64_t kWord = 8;
  const auto has_whole_words = [](const MatrixOperand& operand) {
    return (operand.column_stride == 1 ? operand.row_stride : operand.column_stride) % kWord == 0 &&
           operand.batch_stride % kWord == 0;
  };
  return !spec.bias || size_of(spec.result) != 2 ||
         (spec.alignment % 16 == 0 && has_whole_words(spec.a) && has_whole_words(spec.b) && has_whole_words(spec.d));
}

struct MatrixLibrary::Impl {
  Handle handle = nullptr;
};

MatrixLibrary::MatrixLibrary() : impl_(std::make_unique<Impl>()) {
  check_cublas(cublas().create(&impl_->handle), "start");
}

MatrixLibrary::~MatrixLibrary() { cublas().destroy(impl_->handle); }

std::string MatrixLibrary::version() {
  const std::size_t number = cublas().version();
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::vector<std::unique_ptr<MatrixLibrary::Product>> MatrixLibrary::products(const MatrixProductSpec& spec, int limit,
                                                                             std::size_t workspace_limit) const {
  const Descriptors descriptors(spec);
  Preference preference = nullptr;
  check_cublas(cublas().preference_create(&preference), "ask for algorithms");
  const std::unique_ptr<Preference, void (*)(Preference*)> owner(
      &preference, [](Preference* p) { cublas().preference_destroy(*p); });
  const auto set = [&](int attribute, auto value) {
    check_cublas(cublas().preference_set(preference, attribute, &value, sizeof value), "ask for algorithms");
  };
  set(kMaxWorkspace, workspace_limit);
  // Sums of fp8 that are split would be others, and are not faster on an H100.
  set(kReductionSchemes, spec.operands == DataType::kFloat8E4M3 ? kNeverReduce : kReduceInComputeType);
  for (int operand = 0; operand < 4; ++operand) set(kAlignmentA + operand, static_cast<std::uint32_t>(spec.alignment));
  std::vector<HeuristicResult> results(static_cast<std::size_t>(limit));
  int found = 0;
  const int status = cublas().heuristic(impl_->handle, descriptors.descriptor, descriptors.a, descriptors.b,
                                        descriptors.d, descriptors.d, preference, limit, results.data(), &found);
  std::vector<std::unique_ptr<Product>> products;
  if (status != 0) return products;
  for (int i = 0; i < found; ++i)
    if (results[i].state == 0) products.push_back(std::make_unique<LtProduct>(impl_->handle, spec, results[i]));
  return products;
}

std::unique_ptr<MatrixLibrary::Product> MatrixLibrary::product(const MatrixProductSpec& spec,
                                                               const std::string& tactic) const {
  Algorithm algorithm;
  if (!from_hex(tactic, algorithm)) return nullptr;
  const Descriptors descriptors(spec);
  HeuristicResult result{};
  if (cublas().algorithm_check(impl_->handle, descriptors.descriptor, descriptors.a, descriptors.b, descriptors.d,
                               descriptors.d, &algorithm, &result) != 0)
    return nullptr;
  result.algorithm = algorithm;
  return std::make_unique<LtProduct>(impl_->handle, spec, result);
}

}  // namespace ulpscope::cuda
