# An application in Sinatra, which each event asks for its page, as a web server would by Rack.

require "sinatra/base"
require "rack/mock"
require_relative "uncia_envelope"

PAGE = "<!doctype html><title>hello</title><p>#{'hello ' * 100}</p>\n"

class Hello < Sinatra::Base
  set :environment, :production

  get "/hello" do
    content_type :html
    PAGE
  end
end

APPLICATION = Rack::MockRequest.new(Hello.new)

def handler(event:, context:)
  Uncia.enveloped do
    page = APPLICATION.get("/hello")
    [{ status: page.status, bytes: page.body.bytesize }, page.body == PAGE]
  end
end
