"""The chat API of Vercel's AI SDK: useChat requests and UI message streams."""
