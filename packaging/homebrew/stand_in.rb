# What of Homebrew a formula here uses, for a machine without it: stand_in.rb FORMULA PREFIX unpacks the tarball for this
# processor, checks its sum, installs below PREFIX and runs the formula's test.
require "digest"
require "fileutils"
require "pathname"
require "tmpdir"

class Pathname
  def install(*files)
    mkpath
    files.flatten.each { |file| FileUtils.cp_r(file, self) }
  end
end

class Formula
  class << self
    attr_reader :source, :sum, :check

    def desc(_) = nil
    def license(_) = nil
    def depends_on(_) = nil
    def version(text = nil) = text ? @version = text : @version
    def url(text) = @source = text
    def sha256(text) = @sum = text
    def on_intel = (yield if RUBY_PLATFORM.start_with?("x86_64"))
    def on_arm = (yield if RUBY_PLATFORM.start_with?("aarch64"))
    def test(&block) = @check = block
    def inherited(formula) = (@formula = formula)
    attr_reader :formula
  end

  def initialize(prefix) = @prefix = Pathname(prefix)
  def bin = @prefix / "bin"
  def man1 = @prefix / "share/man/man1"
  def man8 = @prefix / "share/man/man8"
  def bash_completion = @prefix / "etc/bash_completion.d"
  def zsh_completion = @prefix / "share/zsh/site-functions"
  def fish_completion = @prefix / "share/fish/vendor_completions.d"

  def shell_output(command)
    text = `#{command}`
    $CHILD_STATUS.nil? || $?.success? or raise "#{command} failed"
    text
  end

  def assert_match(expected, text)
    text.include?(expected) or raise "no #{expected.inspect} in #{text}"
    puts text.lines.first
  end
end

formula, prefix = ARGV
load File.expand_path(formula)
chosen = Formula.formula
tarball = chosen.source.delete_prefix("file://")
Digest::SHA256.file(tarball).hexdigest == chosen.sum or raise "#{tarball} has another sum"
Dir.mktmpdir do |work|
  system("tar", "--extract", "--file", tarball, "--directory", work, "--strip-components", "1", exception: true)
  installed = chosen.new(prefix)
  Dir.chdir(work) { installed.install }
  installed.instance_exec(&chosen.check)
end
